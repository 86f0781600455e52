"""Shorter responses earn more."""

from collections.abc import Sequence


def response_length(
    response_token_ids: Sequence[Sequence[int]], *, limit: int = 1024
) -> list[float]:
    """1 for an empty response, and linearly less with its tokens to 0 at `limit` and beyond."""
    if limit <= 0:
        raise ValueError(f"limit {limit} is no number of tokens: set it to 1 or more")
    return [max(0.0, 1 - len(tokens) / limit) for tokens in response_token_ids]
