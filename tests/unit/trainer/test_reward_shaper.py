"""Shaping by the configuration: its order, its statistics, its metrics."""

import math
import statistics
from typing import Any

import pytest
import torch
from torch import Tensor

from lightrft_ray.config import RewardConfig
from lightrft_ray.trainer.metric_sums import metric_values
from lightrft_ray.trainer.reward_shaper import RewardShaper

_LENGTHS = torch.tensor([1, 6, 8, 10, 10])
_GROUPS = torch.tensor([0, 0, 0, 1, 1])
_REWARDS = torch.tensor([1.0, 4.0, math.nan, -2.0, 1.0])


def _shaper(**settings: Any) -> RewardShaper:
    return RewardShaper(RewardConfig(**settings), max_length=10)


def _assert_shaped(shaped: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(shaped, torch.tensor(expected), equal_nan=True)


def test_without_settings_rewards_stay_as_they_are() -> None:
    shaped = _shaper().shape(_REWARDS, _LENGTHS, _GROUPS)
    _assert_shaped(shaped.rewards, _REWARDS.tolist())
    assert shaped.metrics == {}


def test_clip() -> None:
    shaped = _shaper(reward_clip_range=(-1.0, 3.0)).shape(_REWARDS, _LENGTHS, _GROUPS)
    _assert_shaped(shaped.rewards, [1.0, 3.0, math.nan, -1.0, 1.0])
    assert metric_values(shaped.metrics) == {"reward_clipped": 0.5}


@pytest.mark.parametrize("factor", [None, 0.5])
def test_the_length_penalty_comes_after_the_clip(factor: float | None) -> None:
    """A buffer of 5 below 10 tokens: 6 tokens cost a fifth, 10 all of it."""
    shaper = _shaper(
        reward_clip_range=(0.0, 3.0), overlong_buffer_len=5, overlong_penalty_factor=factor
    )
    shaped, scale = shaper.shape(_REWARDS, _LENGTHS, _GROUPS), factor or 1.0
    _assert_shaped(shaped.rewards, [1.0, 3 - scale / 5, math.nan, -scale, 1 - scale])
    values = metric_values(shaped.metrics)
    assert values["overlong_penalty"] == pytest.approx(-scale * (1 / 5 + 1 + 1) / 4)


def test_length_shaping_comes_first() -> None:
    shaper = _shaper(length_shaping="linear", reward_clip_range=(-1.0, 3.0), overlong_buffer_len=5)
    shaped = shaper.shape(_REWARDS, _LENGTHS, _GROUPS)
    _assert_shaped(shaped.rewards, [0.9, 3 - 1 / 5, math.nan, -2.0, -1.0])
    values = metric_values(shaped.metrics)
    assert values["length_shaping"] == pytest.approx(-(0.1 + 0.6 + 1 + 1) / 4)


@pytest.mark.parametrize("mode", ["scale", "standardize"])
def test_the_running_norm_is_over_all_batches_without_failed_samples(mode: str) -> None:
    batches, seen = ([1.0, 4.0, math.nan], [-2.0, 0.5, 7.0], [1.0, 1.0, math.inf]), []
    shaper = _shaper(reward_running_norm=mode)
    for batch in batches:
        seen += [reward for reward in batch if math.isfinite(reward)]
        mean = statistics.fmean(seen) if mode == "standardize" else 0.0
        expected = [
            (reward - mean) / statistics.stdev(seen) if math.isfinite(reward) else reward
            for reward in batch
        ]
        _assert_shaped(
            shaper.shape(torch.tensor(batch), _LENGTHS[:3], _GROUPS[:3]).rewards, expected
        )


def test_the_clip_is_of_normed_rewards() -> None:
    shaper = _shaper(reward_running_norm="scale", reward_clip_range=(-1.0, 1.0))
    rewards = torch.tensor([100.0, 103.0, 106.0])
    assert shaper.shape(rewards, _LENGTHS[:3], _GROUPS[:3]).rewards.tolist() == [1.0, 1.0, 1.0]


def test_a_resumed_shaper_goes_on() -> None:
    first, resumed = (_shaper(reward_running_norm="standardize") for _ in range(2))
    first.shape(torch.tensor([1.0, 5.0]), _LENGTHS[:2], _GROUPS[:2])
    resumed.load_state_dict(first.state_dict())
    batch = torch.tensor([2.0, 8.0])
    assert torch.equal(
        first.shape(batch, _LENGTHS[:2], _GROUPS[:2]).rewards,
        resumed.shape(batch, _LENGTHS[:2], _GROUPS[:2]).rewards,
    )


def test_a_batch_without_rewards_is_no_fault() -> None:
    shaper = _shaper(
        reward_running_norm="scale", reward_clip_range=(0.0, 1.0), overlong_buffer_len=5
    )
    assert shaper.shape(torch.full((2,), math.nan), _LENGTHS[:2], _GROUPS[:2]).rewards.isnan().all()
