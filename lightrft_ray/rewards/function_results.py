"""What reward functions give, checked: numbers, or numbers with what they are made of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

from lightrft_ray.rewards.sample import SampleScore, failed

_DETAILS = ("score", "components", "token_scores", "step_scores")


@dataclass(frozen=True)
class Details:
    """What a function said beside a sample's score; see `SampleScore`."""

    components: Mapping[str, float] = field(default_factory=dict)
    token_scores: Sequence[float] | None = None
    step_scores: Sequence[float] | None = None


@dataclass(frozen=True)
class Rewards:
    """`values` has one number a sample, NaN where scoring failed; `faults` says why, by index.

    `details` are of those samples, by index, of which the function said more than a number.
    """

    values: list[float]
    faults: dict[int, str]
    details: dict[int, Details] = field(default_factory=dict)

    @staticmethod
    def joined(parts: Sequence["Rewards"]) -> "Rewards":
        """The rewards of parts in a row."""
        whole = Rewards([], {})
        for part in parts:
            start = len(whole.values)
            whole.faults.update({start + index: text for index, text in part.faults.items()})
            whole.details.update({start + index: more for index, more in part.details.items()})
            whole.values.extend(part.values)
        return whole

    def as_scores(self, sample_ids: Sequence[str]) -> list[SampleScore]:
        """One answer for each sample."""
        return [self._score(*pair) for pair in enumerate(sample_ids)]

    def _score(self, index: int, sample_id: str) -> SampleScore:
        if index in self.faults:
            return failed(sample_id, self.faults[index])
        more = self.details.get(index, Details())
        return SampleScore(sample_id, self.values[index], **vars(more))


def fault(error: Exception | str, count: int = 1) -> Rewards:
    """`count` samples that got no reward for one reason."""
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return Rewards([math.nan] * count, dict.fromkeys(range(count), reason))


def checked(values: object, count: int, token_counts: Sequence[int] | None = None) -> Rewards:
    """Rewards of a function's return value for `count` samples.

    Each is a number, or a mapping with `score` and any of `components`, `token_scores` (one for
    each of the sample's `token_counts` tokens) and `step_scores`. What is neither fails its sample.
    Raises an error where it is no sequence of `count`.
    """
    if isinstance(values, str | bytes | Mapping):
        raise TypeError(f"a reward function gives a list of rewards, not {type(values).__name__}")
    listed: Sequence[object] = values  # type: ignore[assignment]  # anything with a length
    if len(listed) != count:
        raise ValueError(f"{len(listed)} rewards for {count} samples")
    lengths: Sequence[int | None] = token_counts or [None] * count
    return Rewards.joined([_one(*pair) for pair in zip(listed, lengths, strict=True)])


def _one(value: object, token_count: int | None) -> Rewards:
    if isinstance(value, Mapping):
        try:
            return _detailed(value, token_count)
        except (TypeError, ValueError) as error:
            return fault(str(error))
    number = _number(value)
    if not math.isfinite(number):
        return fault(f"the reward is {value!r}, no finite number")
    return Rewards([number], {})


def _detailed(value: Mapping[str, object], token_count: int | None) -> Rewards:
    unknown = sorted(set(value) - set(_DETAILS))
    if unknown or "score" not in value:
        problem = f"has {unknown[0]!r}" if unknown else "has no 'score'"
        raise ValueError(f"the reward {problem}: it may have {', '.join(_DETAILS)}")
    token_scores, step_scores = (_numbers(value.get(name), name) for name in _DETAILS[2:])
    if token_scores is not None and token_count is not None and len(token_scores) != token_count:
        raise ValueError(f"{len(token_scores)} token_scores for {token_count} tokens")
    components = value.get("components", {})
    if not isinstance(components, Mapping):
        raise TypeError("components is no mapping from names to numbers")
    named = {str(name): _finite(each, f"components {name}") for name, each in components.items()}
    score = _finite(value["score"], "score")
    return Rewards([score], {}, {0: Details(named, token_scores, step_scores)})


def _numbers(values: object, name: str) -> list[float] | None:
    if values is None:
        return None
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is no list of numbers")
    return [_finite(value, f"{name}[{index}]") for index, value in enumerate(values)]


def _finite(value: object, name: str) -> float:
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(f"the reward's {name} is {value!r}, no finite number")
    return number


def _number(value: object) -> float:
    """NaN for what is no number. Scalars of numpy and torch have item()."""
    if isinstance(value, Real):
        return float(value)
    item = getattr(value, "item", None)
    return float(item()) if callable(item) else math.nan
