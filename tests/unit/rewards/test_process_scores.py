"""Scores of tokens and steps find their tokens."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from lightrft_ray.rewards.process_scores import process_rewards, step_ends
from lightrft_ray.rewards.sample import SampleScore

_WORDS = ["first", " step", "\n", "\n", "second", "\n\n", " \n\nthird ", "end", ""]


def _decode(token_ids: Sequence[int]) -> str:
    return "".join(_WORDS[each] for each in token_ids)


def _rewards(**scores: Sequence[float]) -> list[float]:
    score = SampleScore("a", 1.0, **scores)  # type: ignore[arg-type]
    rewards = process_rewards(score, range(9), _decode, "\n\n")
    assert rewards is not None and rewards.dtype == np.float32
    return list(rewards.astype(float))


def test_steps_end_at_their_last_token() -> None:
    assert step_ends(range(9), _decode, "\n\n") == [1, 4, 7]
    assert step_ends([0, 1], _decode, "\n\n") == [1]
    assert step_ends([2, 3], _decode, "\n\n") == []
    assert step_ends([], _decode, "\n\n") == []
    assert step_ends(range(9), _decode, "third") == [4, 7]


def test_each_score_lies_at_its_token() -> None:
    nan = math.nan
    expected = [nan, 0.5, nan, nan, -1, nan, nan, 2, nan]
    np.testing.assert_array_equal(_rewards(step_scores=[0.5, -1, 2]), expected)
    tokens = [0.25 * index for index in range(9)]
    assert _rewards(token_scores=tokens) == tokens
    both = _rewards(token_scores=tokens, step_scores=[0.5, -1, 2])
    assert both == [0, 0.75, 0.5, 0.75, 0, 1.25, 1.5, 3.75, 2]


def test_two_steps_that_end_in_one_token_share_it() -> None:
    score = SampleScore("a", 0.0, step_scores=[1.0, 2.0])
    rewards = process_rewards(score, [0], lambda ids: "a\n\nb" if len(ids) else "", "\n\n")
    assert rewards is not None and rewards.tolist() == [3]


def test_no_process_scores_are_no_rewards() -> None:
    assert process_rewards(SampleScore("a", 1.0), [0], _decode, "\n\n") is None


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({"token_scores": [1.0] * 8}, "8 token scores for a response of 9 tokens"),
        ({"step_scores": [1.0] * 2}, "2 step scores for a response of 3 steps"),
    ],
)
def test_the_wrong_number_of_scores_is_an_error(
    scores: dict[str, list[float]], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        _rewards(**scores)
