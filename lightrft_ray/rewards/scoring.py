"""Calling a reward function so that one bad sample fails alone."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Real

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.functions import RewardFunction


@dataclass(frozen=True)
class RewardInputs:
    """What a reward function may see of B samples: lists of equal length."""

    prompts: Sequence[str]
    responses: Sequence[str]
    references: Sequence[str]
    labels: Sequence[str]

    def only(self, index: int) -> "RewardInputs":
        """One of the samples."""
        return RewardInputs(*([column[index]] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(self.responses)


@dataclass(frozen=True)
class Rewards:
    """`values` has one number a sample, NaN where scoring failed; `faults` says why, by index."""

    values: list[float]
    faults: dict[int, str]


class RewardScorer:
    """A reward function with the arguments it takes. Raises UserError for ones it cannot get."""

    def __init__(self, function: RewardFunction, name: str) -> None:
        self._function = function
        self._name = name
        known = list(RewardInputs.__dataclass_fields__)
        parameters = inspect.signature(function).parameters
        wanted = [
            parameter.name
            for parameter in parameters.values()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            and (parameter.name in known or parameter.default is parameter.empty)
        ]
        unknown = [each for each in wanted if each not in known]
        if unknown:
            raise UserError(
                f"reward.reward_fn {name}: no such argument as {unknown[0]}; "
                f"a reward function takes any of {', '.join(known)}"
            )
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._wanted = known if takes_all else wanted

    def score(self, inputs: RewardInputs) -> Rewards:
        """Rewards of all samples. If the function fails on the batch, each is scored alone."""
        if len(inputs) == 0:
            return Rewards([], {})
        try:
            return _checked(self._call(inputs), len(inputs))
        except Exception as error:  # a user's function: anything may come, and is reported
            if len(inputs) == 1:
                return Rewards([math.nan], {0: f"{type(error).__name__}: {error}"})
        return self._one_by_one(inputs)

    def _call(self, inputs: RewardInputs) -> Sequence[float]:
        columns = asdict(inputs)
        return self._function(**{name: columns[name] for name in self._wanted})

    def _one_by_one(self, inputs: RewardInputs) -> Rewards:
        values: list[float] = []
        faults: dict[int, str] = {}
        for index in range(len(inputs)):
            single = self.score(inputs.only(index))
            values += single.values
            faults.update((index, reason) for reason in single.faults.values())
        return Rewards(values, faults)


def _checked(values: Sequence[float], count: int) -> Rewards:
    if len(values) != count:
        raise ValueError(f"{len(values)} rewards for {count} samples")
    numbers: list[float] = []
    faults: dict[int, str] = {}
    for index, value in enumerate(values):
        number = float(value) if isinstance(value, Real) else _as_number(value)
        numbers.append(number if math.isfinite(number) else math.nan)
        if not math.isfinite(number):
            faults[index] = f"the reward is {value!r}, no finite number"
    return Rewards(numbers, faults)


def _as_number(value: object) -> float:
    """Scalars of numpy and torch have item(); a string or None is no reward."""
    item = getattr(value, "item", None)
    return float(item()) if callable(item) else math.nan
