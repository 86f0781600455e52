"""Scoring: a function gets what it names, and one bad sample fails alone."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.scoring import RewardInputs, RewardScorer

_INPUTS = RewardInputs(
    prompts=["p0", "p1", "p2"],
    responses=["1", "2", "3"],
    references=["1", "5", "3"],
    labels=["l0", "l1", "l2"],
)


def _scorer(function: Callable[..., Any]) -> RewardScorer:
    return RewardScorer(function, "mine")


def test_arguments_are_found_by_name() -> None:
    def reward(labels: Sequence[str], prompts: Sequence[str]) -> list[float]:
        return [float(label[1] + prompt[1]) for label, prompt in zip(labels, prompts, strict=True)]

    assert _scorer(reward).score(_INPUTS).values == [0, 11, 22]


def test_keyword_only_arguments_and_own_defaults() -> None:
    def reward(*, references: Sequence[str], scale: float = 2.0) -> list[float]:
        return [scale * float(reference) for reference in references]

    assert _scorer(reward).score(_INPUTS).values == [2, 10, 6]


def test_keyword_arguments_take_everything() -> None:
    def reward(**columns: Sequence[str]) -> list[float]:
        assert set(columns) == {"prompts", "responses", "references", "labels"}
        return [float(response) for response in columns["responses"]]

    assert _scorer(reward).score(_INPUTS).values == [1, 2, 3]


def test_an_unknown_argument_is_refused_before_the_run() -> None:
    def reward(responses: Sequence[str], answers: Sequence[str]) -> list[float]:
        return []

    with pytest.raises(
        UserError, match=r"reward\.reward_fn mine: no such argument as answers; .* references"
    ):
        _scorer(reward)


def test_a_batch_that_fails_is_scored_one_by_one() -> None:
    sizes = []

    def reward(responses: Sequence[str]) -> list[float]:
        sizes.append(len(responses))
        if "2" in responses:
            raise KeyError("two")
        return [float(response) for response in responses]

    rewards = _scorer(reward).score(_INPUTS)
    assert sizes == [3, 1, 1, 1]
    assert rewards.values[::2] == [1, 3]
    assert math.isnan(rewards.values[1])
    assert rewards.faults == {1: "KeyError: 'two'"}


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, None, "1.0", [1.0], np.float64("nan")], ids=repr
)
def test_what_is_no_finite_number_is_masked_and_never_0(bad: object) -> None:
    rewards = _scorer(lambda responses: [0.5, bad, 1]).score(_INPUTS)
    assert rewards.values[::2] == [0.5, 1]
    assert math.isnan(rewards.values[1])
    assert rewards.faults == {1: f"the reward is {bad!r}, no finite number"}


@pytest.mark.parametrize(
    "values",
    [
        [True, False, True],
        [np.float32(1), np.int64(0), np.float64(1)],
        np.array([1.0, 0.0, 1.0]),
        torch.tensor([1.0, 0.0, 1.0]),
        (torch.tensor(1), torch.tensor(0.0), torch.tensor([1.0])),
    ],
    ids=["bool", "numpy-scalars", "numpy-array", "tensor", "tensors"],
)
def test_numbers_of_all_kinds(values: Sequence[float]) -> None:
    rewards = _scorer(lambda responses: values).score(_INPUTS)
    assert rewards.values == [1, 0, 1]
    assert all(type(value) is float for value in rewards.values)
    assert rewards.faults == {}


@pytest.mark.parametrize("result", [[1.0], [1.0] * 4, [], None, 1.0], ids=repr)
def test_a_wrong_number_of_rewards_fails_every_sample(result: Any) -> None:
    """Not even the reward of a sample that was scored alone is believed if the count is wrong."""
    rewards = _scorer(lambda responses: result if len(responses) > 1 else []).score(_INPUTS)
    assert all(math.isnan(value) for value in rewards.values)
    assert rewards.faults == dict.fromkeys(range(3), "ValueError: 0 rewards for 1 samples")


def test_a_tensor_of_several_numbers_fails_its_sample_alone() -> None:
    def reward(responses: Sequence[str]) -> list[Any]:
        return [torch.ones(2) if response == "1" else 1.0 for response in responses]

    rewards = _scorer(reward).score(_INPUTS)
    assert math.isnan(rewards.values[0])
    assert rewards.values[1:] == [1, 1]
    assert list(rewards.faults) == [0]


def test_no_samples_call_nothing() -> None:
    def reward(responses: Sequence[str]) -> list[float]:
        raise AssertionError("called")

    rewards = _scorer(reward).score(RewardInputs([], [], [], []))
    assert (rewards.values, rewards.faults) == ([], {})
