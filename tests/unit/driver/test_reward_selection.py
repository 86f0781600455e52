"""Choosing groups and samples by rewards: even batches, every group accounted for."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import rollout_group, sample

from lightrft_ray.driver.rewards import SampleRewards
from lightrft_ray.driver.selection import ScoredGroup, collect, has_signal


def _scored(*rewards: float, truncated: Sequence[int] = ()) -> ScoredGroup:
    samples = [sample([i], is_truncated=i in truncated) for i in range(len(rewards))]
    return ScoredGroup(rollout_group("a", [1], samples), _rewards(rewards))


def _rewards(values: Sequence[float]) -> SampleRewards:
    count = len(values)
    return SampleRewards(torch.tensor(values), (None,) * count, ({},) * count)


_NAN = math.nan


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (_scored(0.0, 1.0, 0.0), True),
        (_scored(1.0, 1.0, 1.0), False),
        (_scored(0.3, 0.3, 0.3), False),  # all equal, though neither 0 nor 1
        (_scored(0.3, 0.3, 0.4), True),
        (_scored(1.0, _NAN, 1.0), False),
        (_scored(1.0, _NAN, _NAN), False),
        (_scored(_NAN, _NAN, _NAN), False),
    ],
)
def test_a_group_has_signal_where_rewards_differ(group: ScoredGroup, expected: bool) -> None:
    always = _scored(0.0, 1.0)
    assert has_signal([always, group, always], mask_truncated=False) == [True, expected, True]


@pytest.mark.parametrize(("masks", "expected"), [(True, False), (False, True)])
def test_masked_samples_give_no_signal(masks: bool, expected: bool) -> None:
    group = _scored(0.0, 1.0, 1.0, truncated=[0])
    assert has_signal([group], mask_truncated=masks) == [expected]


@pytest.mark.parametrize(
    ("rewards", "count", "kept"),
    [
        ([0.0, 3.0, 1.0, 2.0], 2, [1, 3]),
        ([1.0, 1.0, 1.0], 2, [0, 1]),
        ([_NAN, 0.0, -1.0], 2, [1, 2]),
        ([_NAN, 0.0, _NAN], 2, [0, 1]),
    ],
)
def test_the_best_samples(rewards: list[float], count: int, kept: list[int]) -> None:
    best = _scored(*rewards).best(count, mask_truncated=False)
    assert [one.token_ids.tolist() for one in best.group.samples] == [[i] for i in kept]
    expected = torch.tensor([rewards[i] for i in kept])
    torch.testing.assert_close(best.rewards.values, expected, equal_nan=True)


@pytest.mark.parametrize(("masks", "kept"), [(True, [1, 3]), (False, [0, 1])])
def test_the_best_samples_can_be_trained_on(masks: bool, kept: list[int]) -> None:
    group = _scored(9.0, 1.0, _NAN, -1.0, truncated=[0])
    best = group.best(2, mask_truncated=masks)
    assert [one.token_ids.tolist() for one in best.group.samples] == [[i] for i in kept]


@given(
    draws=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6),
)
def test_batches_are_even_and_informative_groups_come_first(draws: list[list[bool]]) -> None:
    drawn: list[ScoredGroup] = []
    batches = iter(draws)

    def draw() -> list[ScoredGroup]:
        groups = [_scored(0.0, float(is_one)) for is_one in next(batches)]
        drawn.extend(groups)
        return groups

    def is_wanted(scored: Sequence[ScoredGroup]) -> list[bool]:
        return has_signal(scored, mask_truncated=False)

    collected = collect(draw, is_wanted, count=3, max_batches=len(draws))
    assert len(collected.groups) == 3
    assert collected.dropped == len(drawn) - 3
    assert collected.batches == len(drawn) // 3
    wanted = [each for each, is_one in zip(drawn, is_wanted(drawn), strict=True) if is_one]
    assert collected.groups[: len(wanted)] == wanted[:3]
    enough = len(wanted) >= 3
    assert enough or collected.batches == len(draws)
    before_the_last = sum(is_one for batch in draws[: collected.batches - 1] for is_one in batch)
    assert before_the_last < 3  # no batch was drawn in vain


def test_process_rewards_are_compared_too() -> None:
    steps = (np.array([np.nan, 0.5], dtype=np.float32), None)
    samples = [sample([1, 2]), sample([3])]
    rewards = SampleRewards(torch.tensor([1.0, 1.0]), steps, ({}, {}))
    group = ScoredGroup(rollout_group("a", [1], samples), rewards)
    assert has_signal([group], mask_truncated=False) == [True]
    best = group.best(1, mask_truncated=False)
    assert best.group.samples == (samples[0],)
    mask = torch.ones(1, 3).bool()
    padded = best.rewards.padded_process(mask)
    torch.testing.assert_close(padded, torch.tensor([[math.nan, 0.5, math.nan]]), equal_nan=True)
    assert _rewards([1.0]).padded_process(mask) is None
