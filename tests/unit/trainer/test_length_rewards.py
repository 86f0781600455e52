"""Rewards by length against each paper's formula, written out sample by sample."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightrft_ray.config import RewardConfig
from lightrft_ray.trainer.length_rewards import (
    LengthShaping,
    cosine_length_rewards,
    kimi_length_rewards,
    linear_length_penalty,
)

_MAX = 100
_SAMPLES = st.lists(
    st.tuples(st.integers(1, _MAX), st.booleans(), st.integers(0, 2)), min_size=1, max_size=12
)
_Sample = tuple[int, bool, int]  # length, whether it is correct, group


def _columns(samples: list[_Sample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lengths, is_correct, groups = zip(*samples, strict=True)
    return torch.tensor(is_correct), torch.tensor(lengths), torch.tensor(groups)


def _cosine(length: int, is_correct: bool) -> float:
    """CosFn of 2502.03373 with its parameters: r(0) at length 0, r(L) at the limit."""
    if length == _MAX:
        return -10.0
    at_zero, at_limit = (2.0, 1.0) if is_correct else (-10.0, 0.0)
    return at_limit + 0.5 * (at_zero - at_limit) * (1 + math.cos(math.pi * length / _MAX))


def _kimi(sample: _Sample, samples: list[_Sample]) -> float:
    """λ of 2501.12599 among the samples of the same prompt."""
    length, is_correct, group = sample
    lengths = [other[0] for other in samples if other[2] == group]
    if min(lengths) == max(lengths):
        return 0.0
    value = 0.5 - (length - min(lengths)) / (max(lengths) - min(lengths))
    return value if is_correct else min(0.0, value)


@given(samples=_SAMPLES)
def test_cosine(samples: list[_Sample]) -> None:
    is_correct, lengths, _ = _columns(samples)
    expected = [_cosine(length, right) for length, right, _ in samples]
    rewards = cosine_length_rewards(is_correct, lengths, max_length=_MAX)
    torch.testing.assert_close(rewards, torch.tensor(expected), atol=1e-5, rtol=0)


@given(samples=_SAMPLES)
def test_kimi(samples: list[_Sample]) -> None:
    rewards = kimi_length_rewards(*_columns(samples))
    expected = [_kimi(sample, samples) for sample in samples]
    torch.testing.assert_close(rewards, torch.tensor(expected), atol=1e-6, rtol=0)


def test_linear() -> None:
    penalty = linear_length_penalty(torch.tensor([0, 25, 100]), max_length=100, factor=2.0)
    assert penalty.tolist() == [0.0, -0.5, -2.0]


def test_no_samples_are_no_fault() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    assert kimi_length_rewards(empty.bool(), empty, empty).shape == (0,)


_REWARDS = torch.tensor([1.0, 0.25, math.nan, 0.5, 1.0])
_LENGTHS = torch.tensor([2, 4, 10, 10, 6])
_GROUPS = torch.tensor([7, 7, 7, 3, 3])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1.0, 0.25, math.nan, 0.5, 1.0]),
        ({"length_shaping": "linear"}, [0.8, -0.15, math.nan, -0.5, 0.4]),
        (
            {"length_shaping": "linear", "length_shaping_factor": 0.5},
            [0.9, 0.05, math.nan, 0.0, 0.7],
        ),
        ({"length_shaping": "kimi"}, [1.5, -0.25, math.nan, 0.0, 1.5]),
        (
            {"length_shaping": "kimi", "length_shaping_factor": 0.2, "correct_threshold": 0.25},
            [1.1, 0.15, math.nan, 0.4, 1.1],
        ),
        (
            {
                "length_shaping": "cosine",
                "cosine_correct": (1.0, 0.0),
                "cosine_wrong": (-1.0, 0.0),
                "cosine_exceeded": -3.0,
            },
            [
                (1 + math.cos(0.2 * math.pi)) / 2,
                -(1 + math.cos(0.4 * math.pi)) / 2,
                math.nan,
                -3.0,
                (1 + math.cos(0.6 * math.pi)) / 2,
            ],
        ),
    ],
)
def test_a_run_shapes_by_length(settings: dict[str, Any], expected: list[float]) -> None:
    """A failed sample is nobody's longest."""
    shaping = LengthShaping.of(RewardConfig(**settings))
    shaped = shaping.apply(_REWARDS, _LENGTHS, _GROUPS, max_length=10)
    torch.testing.assert_close(shaped, torch.tensor(expected), equal_nan=True)
    assert _REWARDS[0] == 1.0
