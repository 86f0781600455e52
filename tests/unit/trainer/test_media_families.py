"""Experience of every style of images and videos, with transformers' own processors and models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from makers import length_reward, picture, strategy
from media_families import FAMILIES, load_family
from transformers import AutoTokenizer

from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.critic_vl import CriticVL
from lightrft_ray.trainer.batch_media import media_of_experience, model_inputs
from lightrft_ray.trainer.experience_maker_vl import NaiveExperienceMakerVL
from lightrft_ray.trainer.experience_rows import join_rows, split_experience
from lightrft_ray.trainer.media import held_bytes
from lightrft_ray.trainer.prompt_inputs import Video
from lightrft_ray.trainer.replay_buffer import ReplayBuffer
from lightrft_ray.trainer.sample_layouts import pack_samples

_VIDEO = Video([picture(seed) for seed in (5, 6)], fps=2.0)


def _maker(folder: Path, family: str) -> NaiveExperienceMakerVL:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, processor = load_family(family, tokenizer)
    return NaiveExperienceMakerVL(
        ActorVL(model),
        CriticVL(model),
        None,
        None,
        processor.tokenizer,
        processor,
        256,
        None,
        strategy(n_samples_per_prompt=2, micro_rollout_batch_size=8),
        reward_fn=length_reward,
    )


def _prompts(family: str) -> tuple[list[str], list[Any]]:
    """Text alone, one image, and two of different shapes; a video where the family sees some."""
    image, video = FAMILIES[family].image, FAMILIES[family].video
    texts = ["How many?", f"{image}What?", f"a{image}b{image}c"]
    shown: list[Any] = [None, picture(1), [picture(2, width=112), picture(3)]]
    if video is not None:
        texts += [f"{video}When?", f"{image}or {video}?"]
        shown += [_VIDEO, [picture(4), _VIDEO]]
    return texts, shown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mixed_batch_is_its_samples(tiny_folder: Path, family: str) -> None:
    own = _maker(tiny_folder, family)
    texts, shown = _prompts(family)
    samples = own.generate_samples(texts, shown, ["a"] * len(texts), None, min_new_tokens=3)
    experiences = [own.make_experience(batch) for batch in samples]
    rows = [row for each in experiences for row in split_experience(each)]
    images = [0, 0, 1, 1, 2, 2, 0, 0, 1, 1]
    videos = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert [row.media.images.count for row in rows] == images[: len(rows)]
    assert [row.media.videos.count for row in rows] == videos[: len(rows)]
    with torch.no_grad():
        for index, row in enumerate(rows):
            alone = join_rows([row], 0)
            inputs = own.processor_fn([texts[index // 2]], [shown[index // 2]], 256)
            assert model_inputs(alone).keys() == inputs.keys() - {"input_ids", "attention_mask"}
            for name, value in model_inputs(alone).items():
                assert torch.equal(value, inputs[name]), name
            width = alone.action_mask.shape[1]
            for scorer, name in ((own.actor, "action_log_probs"), (own.critic, "values")):
                got = scorer(alone.sequences, width, alone.attention_mask, **model_inputs(alone))
                torch.testing.assert_close(got[0], row.per_action[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_order_of_samples_is_scored_alike(tiny_folder: Path, family: str) -> None:
    own = _maker(tiny_folder, family)
    texts, shown = _prompts(family)
    samples = own.generate_samples(texts, shown, ["a"] * len(texts), None, min_new_tokens=3)
    rows = [row for batch in samples for row in split_experience(own.make_experience(batch))]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    joined = join_rows([rows[index] for index in order], own.tokenizer.pad_token_id)
    width = joined.action_mask.shape[1]
    with torch.no_grad():
        got = own.actor(joined.sequences, width, joined.attention_mask, **model_inputs(joined))
    torch.testing.assert_close(got, joined.action_log_probs, rtol=0, atol=1e-5)
    cut = media_of_experience(joined)
    for index, media in zip(order, cut, strict=True):
        for medium, original in zip(
            (media.images, media.videos),
            (rows[index].media.images, rows[index].media.videos),
            strict=True,
        ):
            assert medium.count == original.count
            if original.pixels is not None:
                assert torch.equal(medium.pixels, original.pixels)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_buffer_holds_a_groups_pixels_once(tiny_folder: Path, family: str) -> None:
    own = _maker(tiny_folder, family)
    image = FAMILIES[family].image
    own.settings = own.settings.__class__(n_samples_per_prompt=4, micro_rollout_batch_size=1)
    samples = own.generate_samples([f"a{image}b"], [picture(1)], ["a"], None, max_new_tokens=2)
    buffer = ReplayBuffer(4)
    for batch in samples:
        buffer.append(own.make_experience(batch))
    rows = [buffer[index] for index in range(4)]
    assert len({row.media.images.pixels.data_ptr() for row in rows}) == 1
    assert held_bytes([row.media for row in rows]) == samples[0].pixel_values.nbytes
    assert all(row.media.extras is rows[0].media.extras for row in rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_further_inputs_survive_packing(tiny_folder: Path, family: str) -> None:
    own = _maker(tiny_folder, family)
    texts, shown = _prompts(family)
    (samples, *_) = own.generate_samples(texts, shown, ["a"] * len(texts), None, min_new_tokens=3)
    one, other = own.make_experience(samples), own.make_experience(pack_samples(samples))
    torch.testing.assert_close(one.action_log_probs, other.action_log_probs)
