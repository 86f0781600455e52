"""The vLLM generator against plain transformers, on the same tokens and images."""

import json
import math
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch
from PIL import Image
from ray.actor import ActorHandle
from ray.exceptions import RayTaskError, TaskCancelledError
from transformers import AutoModelForImageTextToText, PreTrainedModel

from lightrft_ray.config import InfrastructureError, RunConfig
from lightrft_ray.data.messages import ChatMessage
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.reading import ReadRules, read_source
from lightrft_ray.data.sources import open_source
from lightrft_ray.driver.preflight import RunInputs
from lightrft_ray.driver.seeds import prompt_seed
from lightrft_ray.sync.buckets import BucketSpec, pack_buckets
from lightrft_ray.workers.actor_group import wait_for
from lightrft_ray.workers.messages import (
    FirstToken,
    GenerationSettings,
    GroupTokens,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
    fetch_groups,
)
from tests.integration.launching import assert_all_gone

SETTINGS = GenerationSettings(n=4, max_tokens=8, temperature=1.0)
TIMEOUT = 120


def tasks_of(prompts: tuple[Prompt, ...]) -> list[PromptTask]:
    return [PromptTask(prompt, 0, prompt_seed(1, prompt.id, 0)) for prompt in prompts]


def _generate(
    generator: ActorHandle, tasks: list[PromptTask], settings: GenerationSettings = SETTINGS
) -> list[RolloutGroup | SkippedPrompt]:
    return ray.get(generator.generate.remote(tasks, settings), timeout=TIMEOUT)


def load_model(config: RunConfig) -> PreTrainedModel:
    return AutoModelForImageTextToText.from_pretrained(config.model.pretrain).eval()


@torch.no_grad()
def plain_log_probs(
    model: PreTrainedModel, group: GroupTokens, temperature: float, forbidden: tuple[int, ...]
) -> list[torch.Tensor]:
    """One forward pass a sample by transformers alone, its own rotary positions included."""
    (fetched,) = fetch_groups([group])
    results = []
    for response in fetched.responses:
        ids = torch.cat([fetched.prompt_ids, response])[None]
        logits = model(
            input_ids=ids,
            mm_token_type_ids=(ids == model.config.image_token_id).long(),
            **fetched.media,
        ).logits[0, len(fetched.prompt_ids) - 1 : -1]
        logits = logits / temperature
        logits[:, list(forbidden)] = -math.inf
        results.append(logits.log_softmax(-1).gather(-1, response[:, None])[:, 0])
    return results


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_rollout_log_probs_are_those_of_the_sampled_distribution(
    generator: ActorHandle, config: RunConfig, inputs: RunInputs, temperature: float
) -> None:
    settings = replace(SETTINGS, temperature=temperature)
    groups = _generate(generator, tasks_of(inputs.train_prompts[:6]), settings)
    model, forbidden = load_model(config), tuple(inputs.sampling.forbidden_token_ids)
    for group in groups:
        assert isinstance(group, RolloutGroup)
        expected = plain_log_probs(model, group.tokens, temperature, forbidden)
        for sample, log_probs in zip(group.samples, expected, strict=True):
            np.testing.assert_allclose(sample.log_probs, log_probs, atol=2e-5)
            assert not set(sample.token_ids) & set(forbidden)


HOT = FirstToken(temperature=3.0, top_k=6)


def test_a_hot_first_token_keeps_the_log_prob_it_was_drawn_with(
    generator: ActorHandle, config: RunConfig, inputs: RunInputs
) -> None:
    """Of the top k at the high temperature; all that follows is of the regular distribution."""
    settings = replace(SETTINGS, n=8, temperature=0.8, first_token=HOT)
    groups = _generate(generator, tasks_of(inputs.train_prompts[:4]), settings)
    model, forbidden = load_model(config), tuple(inputs.sampling.forbidden_token_ids)
    for group in groups:
        assert isinstance(group, RolloutGroup)
        regular = plain_log_probs(model, group.tokens, 0.8, forbidden)
        first = _first_token_distribution(model, group.tokens, HOT, forbidden)
        for sample, log_probs in zip(group.samples, regular, strict=True):
            expected = torch.cat([first[sample.token_ids[:1]], log_probs[1:]])
            np.testing.assert_allclose(sample.log_probs, expected, atol=2e-5)
            ended = sample.token_ids[-1] == inputs.stop_token_id
            assert sample.is_truncated == (not ended)
            assert ended or len(sample.token_ids) == SETTINGS.max_tokens
    assert any(len(sample.token_ids) > 1 for sample in _samples(groups))


@torch.no_grad()
def _first_token_distribution(
    model: PreTrainedModel, group: GroupTokens, hot: FirstToken, forbidden: tuple[int, ...]
) -> torch.Tensor:
    """(V,) log-probs that first tokens are drawn with."""
    (fetched,) = fetch_groups([group])
    ids = fetched.prompt_ids[None]
    types = (ids == model.config.image_token_id).long()
    logits = model(input_ids=ids, mm_token_type_ids=types, **fetched.media).logits[0, -1]
    logits = logits / hot.temperature
    logits[list(forbidden)] = -math.inf
    logits[logits < logits.topk(hot.top_k).values[-1]] = -math.inf
    return logits.log_softmax(-1)


def test_hot_samples_depend_on_the_seed_and_not_on_the_company(
    generator: ActorHandle, inputs: RunInputs
) -> None:
    settings, tasks = replace(SETTINGS, first_token=HOT), tasks_of(inputs.train_prompts[:5])
    together = _generate(generator, tasks, settings)
    alone = [group for task in reversed(tasks) for group in _generate(generator, [task], settings)]
    assert _token_ids(together) == _token_ids(alone[::-1])
    assert _token_ids(together) != _token_ids(_generate(generator, tasks))
    short = _generate(generator, tasks, replace(settings, max_tokens=1))
    assert _token_ids(short) == [ids[:1] for ids in _token_ids(together)]


def test_samples_depend_on_the_seed_and_not_on_the_company(
    generator: ActorHandle, inputs: RunInputs
) -> None:
    tasks = tasks_of(inputs.train_prompts[:5])
    together = _generate(generator, tasks)
    alone = [group for task in reversed(tasks) for group in _generate(generator, [task])]
    assert _token_ids(together) == _token_ids(alone[::-1])
    other = _generate(generator, [replace(task, seed=task.seed + 1000) for task in tasks])
    assert _token_ids(together) != _token_ids(other)


def test_the_same_batch_gives_the_same_bits(generator: ActorHandle, inputs: RunInputs) -> None:
    tasks = tasks_of(inputs.train_prompts[:16])
    first, second = _generate(generator, tasks), _generate(generator, tasks)
    for one, other in zip(_samples(first), _samples(second), strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.log_probs, other.log_probs)


def _samples(groups: list) -> list:
    return [sample for group in groups for sample in group.samples]


def _token_ids(groups: list) -> list[list[int]]:
    return [sample.token_ids.tolist() for sample in _samples(groups)]


def test_pixels_are_stored_once_per_prompt_whatever_n_is(
    generator: ActorHandle, inputs: RunInputs
) -> None:
    """Each group refers to one object; the message to the driver does not grow with the image."""
    for n in (1, 16):
        (group,) = _generate(
            generator, tasks_of(inputs.train_prompts[:1]), replace(SETTINGS, n=n, max_tokens=1)
        )
        media = ray.get(group.media, timeout=TIMEOUT)
        assert {name: value.shape for name, value in media.items()} == {
            "pixel_values": (16, 1176),
            "image_grid_thw": (1, 3),
        }
        assert len(group.samples) == n


def test_a_larger_image_makes_no_larger_message(
    generator: ActorHandle, inputs: RunInputs, image_folder: Path
) -> None:
    sizes = []
    for side in (56, 112):
        Image.new("RGB", (side, side), (9, 9, 9)).save(image_folder / f"{side}.png")
        prompt = replace(
            inputs.train_prompts[0],
            id=f"side-{side}",
            images=(f"{side}.png",),
            image_root=image_folder,
        )
        (group,) = _generate(generator, tasks_of((prompt,)), replace(SETTINGS, max_tokens=1))
        pixels = ray.get(group.media, timeout=TIMEOUT)["pixel_values"].nbytes
        without_ids = replace(group, prompt_ids=np.zeros(0, dtype=np.int64))
        sizes.append((pixels, len(ray.cloudpickle.dumps(without_ids))))
    assert sizes[1][0] == 4 * sizes[0][0]
    assert abs(sizes[1][1] - sizes[0][1]) < 64


def test_images_inside_other_files_are_seen_like_files_of_their_own(
    generator: ActorHandle, inputs: RunInputs, tmp_path: Path
) -> None:
    """Bytes in the rows of a Parquet file, and members of a tar."""
    prompts = inputs.train_prompts[:3]
    rows, files = [], []
    with tarfile.open(tmp_path / "rows.tar", "w") as tar:
        for prompt in prompts:
            image = prompt.image_root / prompt.images[0]
            row = {"id": prompt.id, "prompt": list(prompt.messages), "reference": prompt.reference}
            rows.append(row | {"images": [{"bytes": image.read_bytes(), "path": None}]})
            files.append(tmp_path / f"{prompt.id}.json")
            files[-1].write_text(json.dumps(row))
            tar.add(files[-1], f"{prompt.id}.json")
            tar.add(image, f"{prompt.id}.png")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    expected = _generate(generator, tasks_of(prompts))
    for name in ("rows.parquet", "rows.tar"):
        source = open_source(str(tmp_path / name))
        read = read_source(source, ReadRules(cache_dir=tmp_path / "cache")).prompts
        for group, plain in zip(_generate(generator, tasks_of(read[:])), expected, strict=True):
            assert isinstance(group, RolloutGroup) and isinstance(plain, RolloutGroup)
            for sample, other in zip(group.samples, plain.samples, strict=True):
                np.testing.assert_array_equal(sample.token_ids, other.token_ids)
                np.testing.assert_allclose(sample.log_probs, other.log_probs, atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["missing", "unreadable", "too long", "too long with its image", "address"]
)
def test_a_prompt_that_cannot_be_used_is_skipped_with_its_reason(
    generator: ActorHandle, inputs: RunInputs, image_folder: Path, kind: str
) -> None:
    good = inputs.train_prompts[0]
    (image_folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    Image.new("RGB", (224, 224)).save(image_folder / "large.png")
    words: ChatMessage = {
        "role": "user",
        "content": [{"type": "image"}, {"type": "text", "text": "w" * 60}],
    }
    bad = {
        "missing": replace(good, id="bad", images=("nowhere.png",)),
        "unreadable": replace(good, id="bad", images=("broken.png",), image_root=image_folder),
        "too long": replace(
            good, id="bad", images=(), messages=({"role": "user", "content": "long " * 200},)
        ),
        "too long with its image": replace(
            good, id="bad", images=("large.png",), image_root=image_folder, messages=(words,)
        ),
        "address": replace(good, id="bad", images=("https://example.org/a.png",)),
    }[kind]
    skipped, kept = _generate(generator, tasks_of((bad, good)))
    assert isinstance(skipped, SkippedPrompt)
    expected = {
        "missing": "nowhere.png",
        "unreadable": "broken.png",
        "too long": "prompt bad",
        "too long with its image": "prompt bad: 1",
        "address": "https://example.org/a.png",
    }[kind]
    assert expected in skipped.reason
    assert isinstance(kept, RolloutGroup)


def put_buckets(
    model: PreTrainedModel, leave_out: str | None = None
) -> list[tuple[BucketSpec, ray.ObjectRef]]:
    weights = [(n, p) for n, p in model.named_parameters() if n != leave_out]
    return [(spec, ray.put(parts)) for spec, parts in pack_buckets(weights, 2_000_000)]


def update_weights(
    generator: ActorHandle,
    inputs: RunInputs,
    version: int,
    buckets: list[tuple[BucketSpec, ray.ObjectRef]],
) -> np.ndarray:
    """Publish, and give the canary's log-probs under the new weights."""
    wait_for([generator.update_weights.remote(version, buckets)], TIMEOUT, "the generator")
    canary = generator.score_prompt.remote(inputs.train_prompts[0], [50, 256])
    (log_probs,) = wait_for([canary], TIMEOUT, "the generator")
    return log_probs


def _gap(
    generator: ActorHandle, model: PreTrainedModel, inputs: RunInputs, forbidden: tuple[int, ...]
) -> float:
    (group,) = _generate(generator, tasks_of(inputs.train_prompts[:1]))
    assert isinstance(group, RolloutGroup)
    expected = plain_log_probs(model, group.tokens, 1.0, forbidden)
    pairs = zip(group.samples, expected, strict=True)
    return max(float(np.abs(s.log_probs - e.numpy()).max()) for s, e in pairs)


def test_published_weights_replace_all_old_ones(
    generator: ActorHandle, config: RunConfig, inputs: RunInputs
) -> None:
    """Also those of the vision tower and of the tied head; versions are stamped on tokens."""
    forbidden = tuple(inputs.sampling.forbidden_token_ids)
    model = load_model(config)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    assert _gap(generator, model, inputs, forbidden) > 0.1
    canary = update_weights(generator, inputs, 7, put_buckets(model))
    assert _gap(generator, model, inputs, forbidden) < 1e-4
    (group,) = _generate(generator, tasks_of(inputs.train_prompts[:1]))
    assert {int(v) for s in group.samples for v in s.weight_versions} == {7}
    group = ray.get(
        generator.encode_prompt.remote(inputs.train_prompts[0], [50, 256]), timeout=TIMEOUT
    )
    (expected,) = plain_log_probs(model, group, 1.0, ())
    np.testing.assert_allclose(canary, expected, atol=1e-4)
    update_weights(generator, inputs, 8, put_buckets(load_model(config)))
    assert _gap(generator, load_model(config), inputs, forbidden) < 1e-4


def test_a_call_that_is_cancelled_leaves_the_engine_free(
    generator: ActorHandle, inputs: RunInputs
) -> None:
    settings = replace(SETTINGS, n=64, max_tokens=64, temperature=2.0)
    cancelled = generator.generate.remote(tasks_of(inputs.train_prompts[:64]), settings)
    ray.wait([cancelled], timeout=1)
    ray.cancel(cancelled)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        ray.get(cancelled, timeout=TIMEOUT)
    engine = generator.__ray_call__.remote(
        lambda actor: actor._engine._engine.output_processor.get_num_unfinished_requests()
    )
    assert ray.get(engine, timeout=TIMEOUT) == 0
    assert len(_generate(generator, tasks_of(inputs.train_prompts[:2]))) == 2


def test_damaged_buckets_are_refused_before_the_engine_is_touched(
    generator: ActorHandle, config: RunConfig, inputs: RunInputs
) -> None:
    buckets = put_buckets(load_model(config))
    spec, reference = buckets[0]
    damaged = [part.copy() for part in ray.get(reference)]
    damaged[0][100] ^= 1
    with pytest.raises(InfrastructureError, match="damaged"):
        update_weights(generator, inputs, 9, [(spec, ray.put(damaged)), *buckets[1:]])
    assert (
        _gap(generator, load_model(config), inputs, tuple(inputs.sampling.forbidden_token_ids))
        < 1e-4
    )


def test_an_update_that_leaves_a_weight_out_is_refused(
    local_ray: None, generator: ActorHandle, config: RunConfig, inputs: RunInputs
) -> None:
    """Last of those that use the engine: it stays on hold afterwards, as it must."""
    incomplete = put_buckets(load_model(config), leave_out="model.visual.blocks.1.norm1.weight")
    with pytest.raises(InfrastructureError, match=r"visual\.blocks\.1\.norm1"):
        update_weights(generator, inputs, 10, incomplete)


def test_a_killed_generator_takes_its_engine_with_it(generator: ActorHandle) -> None:
    own = ray.get(generator.__ray_call__.remote(lambda actor: os.getpid()), timeout=TIMEOUT)
    engine = psutil.Process(own).children(recursive=True)
    assert len(engine) >= 2
    psutil.Process(own).kill()
    assert_all_gone(engine, within=15)
