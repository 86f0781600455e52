"""DeepSpeed learners: a step is the same for every ZeRO stage, rank count and row layout."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from safetensors.torch import load_file

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.load import load_config
from lightrft_ray.data.media import load_images
from lightrft_ray.data.processing import PromptEncoder, load_processor
from lightrft_ray.driver.partition import divide_batch
from lightrft_ray.driver.preflight import RunInputs, resolve_checkpoints
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.sync.buckets import unpack_bucket, write_bucket
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import merge_metrics, metric_values
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.batches import DemonstrationBatch
from lightrft_ray.workers.deepspeed_engine import ProcessGroup
from lightrft_ray.workers.learner import PolicyLearner
from lightrft_ray.workers.messages import GroupTokens
from lightrft_ray.workers.snapshot import SnapshotSource
from lightrft_ray.workers.storage import write_files

TIMEOUT = 300
N_GROUPS, N_SAMPLES = 4, 4
LAYOUTS = {  # name: (ranks, ZeRO stage, row layout, samples a micro-batch)
    "one rank, stage 0": (1, 0, "shared_prefix", 16),
    "one rank, stage 1, padded": (1, 1, "padded", 8),
    "two ranks, stage 2": (2, 2, "shared_prefix", 8),
    "two ranks, stage 3": (2, 3, "shared_prefix", 4),
}


@pytest.fixture(scope="module")
def groups(local_ray: None, config: RunConfig, inputs: RunInputs) -> list[GroupTokens]:
    """Prompts with images and made-up answers of different lengths."""
    encoder = PromptEncoder(load_processor(config.model.pretrain), None, 128)
    generator = np.random.default_rng(0)
    groups = []
    for prompt in inputs.train_prompts[:N_GROUPS]:
        encoded = encoder.encode(prompt, load_images(prompt))
        media = {k: v.numpy() for k, v in encoded.mm_inputs.items() if k != "mm_token_type_ids"}
        responses = tuple(
            generator.integers(0, 250, size=length)
            for length in generator.integers(1, 6, size=N_SAMPLES)
        )
        groups.append(GroupTokens(encoded.expanded_ids.numpy(), responses, ray.put(media)))
    return groups


@pytest.fixture(scope="module")
def experience(groups: list[GroupTokens]) -> ExperienceVL:
    """Advantages and old log-probs near those of the model, so that some ratios are clipped."""
    lengths = torch.tensor([len(r) for group in groups for r in group.responses])
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    torch.manual_seed(0)
    return ExperienceVL(
        sequences=torch.zeros(len(lengths), 0),
        action_log_probs=-(6 + 6 * torch.rand(mask.shape)) * mask,
        advantages=torch.randn(mask.shape) * mask,
        action_mask=mask,
    )


@pytest.fixture(scope="module")
def learners(local_ray: None, inputs: RunInputs) -> Iterator[dict[str, ActorGroup]]:
    """A learner for each layout, all with the same weights."""
    started, pending = {}, []
    for name, (ranks, stage, layout, micro) in LAYOUTS.items():
        config = resolve_checkpoints(
            load_config(
                None,
                [
                    ("cpu_learner_ranks", str(ranks)),
                    ("zero_stage", str(stage)),
                    ("row_layout", layout),
                    ("train_batch_size", str(N_GROUPS * N_SAMPLES)),
                    ("micro_train_batch_size", str(micro)),
                    ("micro_rollout_batch_size", "3"),
                    ("cpu_threads_per_worker", "1"),
                ],
            )
        )
        actors = [
            PolicyLearner.options(num_cpus=0.1).remote(config, inputs.sampling, inputs.pad_token_id)
            for _ in range(ranks)
        ]
        host, port = ray.get(actors[0].address.remote(), timeout=TIMEOUT)
        started[name] = ActorGroup("learner", actors, TIMEOUT)
        pending += started[name].start_each(
            "connect", [ProcessGroup(rank, ranks, host, port) for rank in range(ranks)]
        )
    ray.get(pending, timeout=TIMEOUT)
    yield started
    for group in started.values():
        for actor in group.actors:
            ray.kill(actor)


def _train(
    learner: ActorGroup, groups: list[GroupTokens], experience: ExperienceVL
) -> tuple[dict[str, float], float, bool]:
    """Metrics over all ranks, gradient norm, and whether the step was skipped."""
    shares = divide_batch(
        groups,
        experience,
        batch_size=len(experience.advantages),
        ranks=len(learner),
        kl_coef=0,
        horizon=5,
    )
    shares = [
        [replace(batch, demonstrations=own) for batch in share]
        for share, own in zip(shares, _demonstrations(groups, len(learner)), strict=True)
    ]
    answers = learner.wait(learner.start_each("train", shares))
    merged: dict = {}
    for metrics, _ in answers:
        merged = merge_metrics(merged, metrics)
    norms = {result.grad_norm for _, (result,) in answers}
    skipped = {result.skipped for _, (result,) in answers}
    assert len(skipped) == 1, "ranks disagree on whether the step was applied"
    return metric_values(merged), norms.pop(), skipped.pop()


def _taught(groups: list[GroupTokens]) -> list[GroupTokens]:
    """The first sample of each group, as a demonstration."""
    return [group.select(0, 1) for group in groups]


def _demonstrations(groups: list[GroupTokens], ranks: int) -> list[DemonstrationBatch]:
    taught = _taught(groups)
    n_tokens = sum(group.action_count for group in taught)
    return [DemonstrationBatch(tuple(taught[rank::ranks]), n_tokens) for rank in range(ranks)]


def _weights(learner: ActorGroup) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for spec, reference in learner.call("export_weights")[0]:
        block = np.zeros(spec.nbytes, dtype=np.uint8)
        write_bucket(spec, ray.get(reference, timeout=TIMEOUT), block)
        weights |= unpack_bucket(spec, torch.from_numpy(block))
    return weights


def test_log_probs_are_equal(learners: dict[str, ActorGroup], groups: list[GroupTokens]) -> None:
    answers = {name: group.call("log_probs", groups) for name, group in learners.items()}
    expected = answers["one rank, stage 0"][0]
    assert expected.shape == (sum(group.action_count for group in groups),)
    for of_ranks in answers.values():
        for log_probs in of_ranks:
            np.testing.assert_allclose(log_probs, expected, atol=2e-5)


def test_entropies_come_with_the_log_probs(
    learners: dict[str, ActorGroup], groups: list[GroupTokens]
) -> None:
    for learner in learners.values():
        log_probs = learner.call("log_probs", groups)
        for pair, own in zip(learner.call("log_probs_and_entropy", groups), log_probs, strict=True):
            assert pair.shape == (2, len(own))
            np.testing.assert_allclose(pair[0], own, atol=2e-5)
            assert (pair[1] > 0).all() and (pair[1] < math.log(10**5)).all()


def test_a_step_that_is_not_finite_is_skipped_on_all_ranks(
    learners: dict[str, ActorGroup], groups: list[GroupTokens], experience: ExperienceVL
) -> None:
    """One bad sample, which only one of two ranks sees."""
    spoiled = replace(experience, advantages=experience.advantages.clone())
    spoiled.advantages[0, 0] = math.nan
    for learner in learners.values():
        before = _weights(learner)
        _, _, skipped = _train(learner, groups, spoiled)
        assert skipped
        after = _weights(learner)
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_first_step_is_the_same(
    learners: dict[str, ActorGroup], groups: list[GroupTokens], experience: ExperienceVL
) -> None:
    """Loss, gradient norm and the weights it leads to, with demonstrations mixed in."""
    log_probs = learners["one rank, stage 0"].call("log_probs", _taught(groups), Sampling())[0]
    results = {name: _train(group, groups, experience) for name, group in learners.items()}
    weights = {name: _weights(group) for name, group in learners.items()}
    expected, norm, _ = results["one rank, stage 0"]
    assert norm > 0.1
    assert expected["ptx_loss"] == pytest.approx(-log_probs.mean(), rel=1e-4)
    assert expected["clip_frac_low"] + expected["clip_frac_high"] > 0
    for name, (metrics, other_norm, skipped) in results.items():
        assert not skipped
        assert other_norm == pytest.approx(norm, rel=1e-4), name
        for key, value in expected.items():
            assert metrics[key] == pytest.approx(value, rel=1e-4, abs=1e-5), (name, key)
        for tensor_name, tensor in weights["one rank, stage 0"].items():
            # Adam's first step is ±lr: an element whose gradient is about 0 may go either way.
            moved = (weights[name][tensor_name] - tensor).abs()
            assert float(moved.median()) < 1e-6, (name, tensor_name)


def test_ranks_without_an_image_keep_up(
    learners: dict[str, ActorGroup], groups: list[GroupTokens], experience: ExperienceVL
) -> None:
    """One prompt of four has an image: of two ranks that take turns, one always has none."""
    text = np.arange(65, 75)
    blind = [replace(group, prompt_ids=text, media=None) for group in groups[1:]]
    mixed = [groups[0], *blind]
    answers = {name: group.call("log_probs", mixed)[0] for name, group in learners.items()}
    results = {name: _train(group, mixed, experience) for name, group in learners.items()}
    _, norm, _ = results["one rank, stage 0"]
    for name, (_, other_norm, skipped) in results.items():
        np.testing.assert_allclose(answers[name], answers["one rank, stage 0"], atol=2e-2)
        assert not skipped
        assert other_norm == pytest.approx(norm, rel=1e-2), name


def test_a_restored_learner_goes_on_as_it_would_have(
    learners: dict[str, ActorGroup],
    groups: list[GroupTokens],
    experience: ExperienceVL,
    tmp_path: Path,
) -> None:
    """Weights, optimizer and schedule, for every ZeRO stage; back from a file system."""
    for name, learner in learners.items():
        pairs = learner.start_split("snapshot")
        snapshots = learner.wait([snapshot for _, snapshot in pairs])
        url, entries = str(tmp_path / name), {}
        for files, _ in pairs:
            entries |= write_files(url, ray.get(files, timeout=TIMEOUT))
        expected = [_train(learner, groups, experience) for _ in range(2)]
        weights = _weights(learner)
        learner.call("restore", SnapshotSource(url, entries, snapshots[0].signature))
        assert [_train(learner, groups, experience) for _ in range(2)] == expected, name
        for tensor_name, tensor in _weights(learner).items():
            assert torch.equal(weights[tensor_name], tensor), (name, tensor_name)


def test_a_checkpoint_of_another_model_is_refused(learners: dict[str, ActorGroup]) -> None:
    learner = learners["one rank, stage 0"]
    with pytest.raises(UserError, match=r"another policy model .7 parameters"):
        learner.call("restore", SnapshotSource("/nowhere", {}, "7 parameters"))


def test_a_saved_policy_holds_every_weight(
    learners: dict[str, ActorGroup], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("one rank, stage 0", "two ranks, stage 3"):
        folder = tmp_path_factory.mktemp("saved")
        learners[name].call("save_pretrained", str(folder))
        saved, published = load_file(folder / "model.safetensors"), _weights(learners[name])
        assert saved.keys() == published.keys()
        for tensor_name, tensor in published.items():
            torch.testing.assert_close(saved[tensor_name], tensor, rtol=0, atol=0)
