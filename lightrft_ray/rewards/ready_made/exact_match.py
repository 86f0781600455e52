"""The response is the reference."""

from collections.abc import Sequence


def exact_match(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """1 where the response is the reference, white space around both aside; else 0."""
    return [
        float(response.strip() == reference.strip())
        for response, reference in zip(responses, references, strict=True)
    ]
