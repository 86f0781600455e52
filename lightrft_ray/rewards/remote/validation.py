"""Checking a server's answer: what is not certainly the score of a sample is none."""

from collections.abc import Mapping, Sequence

from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed


def check_ids(
    scores: Sequence[SampleScore], asked: Mapping[str, RewardSample], missing: Mapping[str, object]
) -> None:
    """RemoteFault if a part of an answer names a sample twice, or one that was not asked for.

    `asked` are the samples of the request and `missing` those without an answer so far. Which of
    two answers is the right one cannot be known, so that the whole part is refused.
    """
    seen: set[str] = set()
    for score in scores:
        if score.sample_id not in asked:
            raise _invalid(f"it answered for {score.sample_id!r}, which it was not asked for")
        if score.sample_id in seen or score.sample_id not in missing:
            raise _invalid(f"it answered for {score.sample_id!r} twice")
        seen.add(score.sample_id)


def check_score(
    score: SampleScore, sample: RewardSample, score_range: tuple[float, float] | None
) -> SampleScore:
    """The score itself, or the sample's failure if it has a wrong count or lies out of range."""
    if score.score is None:
        return score
    tokens = len(sample.response_token_ids)
    if score.token_scores is not None and len(score.token_scores) != tokens:
        given = len(score.token_scores)
        return failed(sample.sample_id, f"{given} token scores for {tokens} response tokens")
    if score_range is not None and not score_range[0] <= score.score <= score_range[1]:
        low, high = score_range
        return failed(
            sample.sample_id,
            f"the score {score.score:g} lies outside of remote_score_range [{low:g}, {high:g}]",
        )
    return score


def _invalid(message: str) -> RemoteFault:
    return RemoteFault(FaultKind.INVALID, message)
