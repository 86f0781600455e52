"""Reward shaping."""

import json
from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run

from lightrft_ray.trainer.moments import Moments
from lightrft_ray.trainer.shaping import (
    RunningRewardNormalizer,
    clip_rewards,
    overlong_penalty,
)


def _overlong(case: Case) -> dict[str, Any]:
    penalty = overlong_penalty(
        case.integers("lengths"),
        max_length=case.param("max_len"),
        buffer_length=case.param("buffer_len"),
        factor=case.param("factor"),
    )
    return {"penalty": penalty, "rewards": case.floats("rewards") + penalty}


def _running(case: Case) -> dict[str, Any]:
    normalizer = RunningRewardNormalizer()
    after_batch = []
    for batch in case.raw_input("batches"):
        rewards = torch.tensor(batch, dtype=case.dtype)
        normalizer.update(rewards)
        moments = normalizer.moments
        after_batch.append(
            {
                "count": moments.count,
                "mean": moments.mean,
                "var_population": moments.m2 / moments.count,
                "std_unbiased": moments.std,
                "divisor": normalizer.divisor,
                "scaled": normalizer.scale(rewards),
                "standardised": normalizer.standardize(rewards),
            }
        )
    return {"after_batch": after_batch}


def _merge(case: Case) -> dict[str, Any]:
    merged = Moments()
    for part in case.raw_input("parts"):
        merged = merged.merge(Moments.of(torch.tensor(part, dtype=case.dtype)))
    return {
        "count": merged.count,
        "mean": merged.mean,
        "m2": merged.m2,
        "std_unbiased": merged.std,
    }


def _clip(case: Case) -> dict[str, Any]:
    clipped, fraction = clip_rewards(case.floats("rewards"), case.param("low"), case.param("high"))
    return {"clipped": clipped, "clip_fraction": fraction}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("overlong"), ids=str)
def test_overlong_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"penalty": _overlong, "invalid": _overlong})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("reward_norm"), ids=str)
def test_reward_norm_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"running": _running, "merge": _merge, "clip": _clip})


def test_a_normalizer_resumes_where_it_stopped() -> None:
    stopped, resumed = RunningRewardNormalizer(), RunningRewardNormalizer()
    stopped.update(torch.tensor([1.0, 2.0, 4.0]))

    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))

    assert resumed.moments == stopped.moments == Moments(3, 7 / 3, pytest.approx(14 / 3))


def test_rounding_is_no_spread() -> None:
    normalizer = RunningRewardNormalizer()
    for size in (3, 4):
        normalizer.update(torch.full((size,), 0.1, dtype=torch.float64))

    assert normalizer.moments.std > 0
    assert normalizer.divisor == 1.0
