"""How old what a step trains on is, and what its tokens' log-probs are compared with."""

from dataclasses import replace

import numpy as np
import pytest
from rollouts import rollout_group, sample

from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.staleness import staleness_record
from lightrft_ray.workers.messages import GeneratedSample


def _sample(token_ids: list[int], versions: list[int]) -> GeneratedSample:
    return replace(sample(token_ids), weight_versions=np.array(versions))


def test_a_step_tells_the_ages_of_its_tokens_and_samples() -> None:
    """A sample is as old as its oldest token; one of three spans two versions."""
    groups = [
        rollout_group("a", [1], [_sample([1, 2], [7, 7]), _sample([3, 4, 5], [5, 6, 6])]),
        rollout_group("b", [1], [_sample([6], [7])]),
    ]
    record = staleness_record(RolloutBatch.of(groups, pad_token_id=0), version=7)
    assert record == {
        "staleness/mean": pytest.approx(4 / 6),
        "staleness/max": 2,
        "staleness/spanning_fraction": pytest.approx(1 / 3),
        "staleness/share/0": pytest.approx(2 / 3),
        "staleness/share/2": pytest.approx(1 / 3),
    }


def test_a_token_keeps_the_log_prob_of_the_version_that_sampled_it() -> None:
    """Below the ratio, or in its correction, stands the generator's own value, token by token."""
    spanning = _sample([3, 4, 5], [5, 6, 6])
    batch = RolloutBatch.of([rollout_group("a", [1], [spanning, sample([9])])], pad_token_id=0)
    expected = [spanning.log_probs.tolist(), [*sample([9]).log_probs.tolist(), 0.0, 0.0]]
    assert batch.rollout_log_probs.tolist() == expected
