"""Scores of tokens and of steps, laid onto the tokens of a response."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from lightrft_ray.rewards.sample import SampleScore

Decode = Callable[[Sequence[int]], str]


def process_rewards(
    score: SampleScore, token_ids: Sequence[int], decode: Decode, separator: str
) -> np.ndarray | None:
    """(L,) float32 over the response's tokens, NaN at those without a reward; None without any.

    A token's score lies at the token, a step's at the last token of the step. Steps are what
    `separator` parts, those of white space alone left out. Raises ValueError where there are not as
    many scores as tokens or steps.
    """
    if score.token_scores is None and score.step_scores is None:
        return None
    rewards = np.full(len(token_ids), np.nan, dtype=np.float32)
    if score.token_scores is not None:
        _check_count(len(score.token_scores), len(token_ids), "token")
        rewards[:] = score.token_scores
    if score.step_scores is not None:
        ends = step_ends(token_ids, decode, separator)
        _check_count(len(score.step_scores), len(ends), "step")
        for end, value in zip(ends, score.step_scores, strict=True):
            # Two steps may end in one token; a step's score adds to its last token's.
            rewards[end] = np.float32(value) + (0 if np.isnan(rewards[end]) else rewards[end])
    return rewards


def step_ends(token_ids: Sequence[int], decode: Decode, separator: str) -> list[int]:
    """The index of each step's last token."""
    ends = []
    position = 0
    for part in decode(token_ids).split(separator):
        if part.strip():
            ends.append(position + len(part.rstrip()))
        position += len(part) + len(separator)
    counts = range(1, len(token_ids) + 1)
    return [bisect_left(counts, end, key=lambda n: len(decode(token_ids[:n]))) for end in ends]


def _check_count(given: int, wanted: int, what: str) -> None:
    if given != wanted:
        raise ValueError(f"{given} {what} scores for a response of {wanted} {what}s")
