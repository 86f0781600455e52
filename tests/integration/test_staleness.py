"""Asynchronous training on the real stack: generation runs ahead, and loses no prompt."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import ray
import torch
from prometheus_client import REGISTRY
from ray.actor import ActorHandle

from lightrft_ray.driver.loop import Record
from lightrft_ray.workers.messages import GeneratedSample
from tests.integration.test_durable import Stack, running
from tests.integration.test_generator import (
    SETTINGS,
    TIMEOUT,
    load_model,
    plain_log_probs,
    put_buckets,
    tasks_of,
    update_weights,
)

pytestmark = pytest.mark.slow

STALENESS, STEPS, BATCH = 2, 5, 8
OPTIONS = {
    "num_steps": str(STEPS),
    "rollout_batch_size": str(BATCH),
    "n_samples_per_prompt": "4",
    "train_batch_size": "32",
    "micro_train_batch_size": "16",
    "eval_max_samples": "8",
    "save_steps": "1",
    "max_ckpt_num": "9",
    "max_staleness": str(STALENESS),
    "old_log_probs": "learner",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(OPTIONS, tmp_path_factory.mktemp("ahead")) as stack:
        yield stack


@pytest.fixture(scope="module")
def whole(stack: Stack) -> dict[int, Record]:
    """The records of a run that was never stopped."""
    return stack.train()


def _check(records: dict[int, Record]) -> None:
    for record in records.values():
        assert all(math.isfinite(value) for value in record.values())
        parts = ("trained", "filtered", "in_flight", "failed")
        assert record["data/taken"] == sum(record[f"data/{part}"] for part in parts)
    for step in records.keys() - {0}:
        assert records[step]["staleness/max"] <= STALENESS
        shares = [value for name, value in records[step].items() if "staleness/share/" in name]
        assert sum(shares) == pytest.approx(1)
        ahead = min(STALENESS + 1, STEPS - step) * BATCH
        assert records[step]["data/in_flight"] == ahead
    assert records[STEPS]["data/taken"] == records[STEPS]["data/trained"] == STEPS * BATCH
    # The first batches are of the first weights, whatever is trained meanwhile.
    assert records[STEPS]["staleness/max"] > 0


def test_generation_is_ahead_by_no_more_than_it_may(whole: dict[int, Record]) -> None:
    _check(whole)
    assert whole[1]["staleness/max"] == 0
    gaps = [record["rollout/log_prob_gap_max"] for record in whole.values() if record["step"] > 0]
    assert gaps[0] < 1e-4 < gaps[-1]  # as of the present weights, and of older ones
    assert max(record["publish/canary_max_abs_diff"] for record in whole.values()) <= 1e-4


def test_a_checkpoint_loses_no_prompt_in_flight(stack: Stack, whole: dict[int, Record]) -> None:
    resumed = stack.train(stack.store.open(2))
    assert resumed.keys() == {3, 4, 5}
    _check(whole | resumed)


def test_a_response_that_spans_versions_has_each_tokens_log_prob_under_its_own(
    stack: Stack, whole: dict[int, Record]
) -> None:
    """Updates come while it is sampled: its tokens are kept, and the rest is of the new weights.

    The samples of a prompt share what was computed of it, its image included, under one version.
    """
    generator, inputs, config = stack.workers.generator.actors[0], stack.inputs, stack.resolved
    hits = _prefix_hits(generator)
    forbidden = tuple(inputs.sampling.forbidden_token_ids)
    models = [load_model(config), load_model(config)]
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    published = [put_buckets(model) for model in models]
    update_weights(generator, inputs, 20, published[0])
    settings = replace(SETTINGS, n=8, max_tokens=64, temperature=2.0)
    under_way = generator.generate.remote(tasks_of(inputs.train_prompts[:64]), settings)
    version = 20
    while not ray.wait([under_way], timeout=0)[0]:
        version += 1
        update_weights(generator, inputs, version, published[version % 2])
    groups = ray.get(under_way, timeout=TIMEOUT)
    spanning = [group for group in groups if any(map(_spans_versions, group.samples))]
    assert spanning
    for group in spanning[:4]:
        by_model = [plain_log_probs(model, group.tokens, 2.0, forbidden) for model in models]
        for index, sample in enumerate(group.samples):
            own = np.stack([log_probs[index].numpy() for log_probs in by_model])
            expected = own[sample.weight_versions % 2, np.arange(len(sample.token_ids))]
            np.testing.assert_allclose(sample.log_probs, expected, atol=1e-4)
            assert (np.diff(sample.weight_versions) >= 0).all()
    assert _prefix_hits(generator) > hits
    update_weights(generator, inputs, version + 1, published[0])


def test_the_slowest_prompts_of_a_step_are_cancelled_and_counted(stack: Stack) -> None:
    """Without staleness; the prompts that the checkpoint has in flight are sampled first."""
    rollout = stack.resolved.rollout.model_copy(
        update={"max_staleness": 0, "over_sample_rate": 0.5}
    )
    synchronous = stack.resolved.model_copy(update={"rollout": rollout})
    records = replace(stack, resolved=synchronous).train(stack.store.open(STEPS - 1))
    record = records[STEPS]
    assert record["data/cancelled"] == BATCH // 2
    assert record["data/trained"] == STEPS * BATCH
    assert record["data/taken"] == record["data/trained"] + record["data/cancelled"]
    assert record["data/in_flight"] == 0


def _prefix_hits(generator: ActorHandle) -> float:
    """Tokens that an engine found in its prefix cache, since it was started."""
    return ray.get(generator.__ray_call__.remote(_read_prefix_hits), timeout=TIMEOUT)


def _read_prefix_hits(_: object) -> float:
    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    (hits,) = [each.value for each in samples if each.name == "vllm:prefix_cache_hits_total"]
    return hits


def _spans_versions(sample: GeneratedSample) -> bool:
    return len(set(sample.weight_versions.tolist())) > 1
