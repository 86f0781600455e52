"""Ready-made reward functions.

A reward function takes lists with one entry a sample, by keyword, and gives a list of numbers. It
names the arguments it wants among `prompts` (the user's text), `responses`, `references` and
`labels`.
"""

from collections.abc import Callable, Sequence

RewardFunction = Callable[..., Sequence[float]]


def exact_match(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """1 where the response is the reference, white space around both aside; else 0."""
    return [
        float(response.strip() == reference.strip())
        for response, reference in zip(responses, references, strict=True)
    ]


READY_MADE: dict[str, RewardFunction] = {"exact_match": exact_match}
"""Functions by the name that `reward.reward_fn` takes."""
