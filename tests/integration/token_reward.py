"""A reward of the response and of each of its tokens."""

from collections.abc import Sequence


def reward_func(
    responses: Sequence[str], references: Sequence[str], response_token_ids: Sequence[Sequence[int]]
) -> list[dict[str, object]]:
    """1 for the right answer; tokens earn less and less."""
    return [
        {
            "score": float(response.strip() == reference.strip()),
            "token_scores": [0.1 / (index + 1) for index in range(len(token_ids))],
        }
        for response, reference, token_ids in zip(
            responses, references, response_token_ids, strict=True
        )
    ]
