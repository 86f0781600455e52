"""How many tokens a prompt group will have, to share groups out evenly over generators."""

from collections import OrderedDict

from lightrft_ray.workers.messages import RolloutGroup

_NEWEST_WEIGHS = 1 / 32
_PROMPTS_KEPT = 100_000


class TokenForecast:
    """Tokens of a group, prompt and samples: as many as that prompt's had the last time.

    Of a prompt that is new, as many as groups have on the average, the latest the most.
    """

    def __init__(self, longest: int) -> None:
        """`longest` is for the time before the first group has ended."""
        self._mean: float | None = None
        self._longest = longest
        self._by_prompt: OrderedDict[str, int] = OrderedDict()

    def expected(self, prompt_id: str) -> int:
        """Tokens that a group of this prompt will have."""
        mean = self._longest if self._mean is None else round(self._mean)
        return max(self._by_prompt.get(prompt_id, mean), 1)

    def note(self, group: RolloutGroup) -> None:
        """Learn from a group that has ended."""
        tokens = group.tokens.token_count
        before = tokens if self._mean is None else self._mean
        self._mean = before + _NEWEST_WEIGHS * (tokens - before)
        self._by_prompt[group.task.prompt.id] = tokens
        self._by_prompt.move_to_end(group.task.prompt.id)
        if len(self._by_prompt) > _PROMPTS_KEPT:
            self._by_prompt.popitem(last=False)
