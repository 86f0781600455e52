"""Calling a reward function so that one bad sample fails alone."""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.function_results import Rewards, checked, fault
from lightrft_ray.rewards.functions import RewardFunction
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample

__all__ = ["RewardInputs", "RewardScorer", "Rewards"]

_BY_DEFAULT = ("prompts", "responses", "references", "labels")
_OF_ONE_SAMPLE = {name.removesuffix("s"): name for name in _BY_DEFAULT}


@dataclass(frozen=True)
class RewardInputs:
    """What a reward function may see of B samples: lists of equal length, or empty if not given."""

    prompts: Sequence[str]
    responses: Sequence[str]
    references: Sequence[str]
    labels: Sequence[str]
    messages: Sequence[Sequence[Mapping[str, object]]] = ()
    images: Sequence[Sequence[EncodedMedia]] = ()
    videos: Sequence[Sequence[EncodedMedia]] = ()
    response_token_ids: Sequence[Sequence[int]] = ()

    @staticmethod
    def of(samples: Sequence[RewardSample], *, with_media: bool = True) -> "RewardInputs":
        """All columns of samples; images and videos where they are wanted."""
        return RewardInputs(
            prompts=[each.prompt for each in samples],
            responses=[each.response for each in samples],
            references=[each.reference for each in samples],
            labels=[each.label for each in samples],
            messages=[each.messages for each in samples],
            images=[each.images for each in samples if with_media],
            videos=[each.videos for each in samples if with_media],
            response_token_ids=[each.response_token_ids for each in samples],
        )

    def only(self, index: int) -> "RewardInputs":
        """One of the samples."""
        return self.part(index, index + 1)

    def part(self, start: int, stop: int) -> "RewardInputs":
        """The samples [start, stop)."""
        return RewardInputs(*(column[start:stop] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(self.responses)


_COLUMNS = tuple(field.name for field in fields(RewardInputs))


class RewardScorer:
    """A reward function with the arguments it takes. Raises UserError for ones it cannot get.

    `arguments` are values for parameters of its own; `setting` is where the run named it.
    """

    def __init__(
        self,
        function: RewardFunction,
        name: str,
        arguments: Mapping[str, object] | None = None,
        setting: str = "reward.reward_fn",
    ) -> None:
        self._function = function
        self._arguments = dict(arguments or {})
        parameters = inspect.signature(function).parameters
        error = f"{setting} {name}"
        _check_own_arguments(parameters, self._arguments, error)
        wanted = [each for each in _wanted(parameters) if each not in self._arguments]
        self._is_per_sample = any(each in _OF_ONE_SAMPLE for each in wanted)
        known = [*(_OF_ONE_SAMPLE if self._is_per_sample else _BY_DEFAULT), *_COLUMNS[4:]]
        unknown = [each for each in wanted if each not in known]
        if unknown:
            raise UserError(
                f"{error}: no such argument as {unknown[0]}; "
                f"a reward function takes any of {', '.join(known)}"
            )
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        own = list(_OF_ONE_SAMPLE) if self._is_per_sample else list(_BY_DEFAULT)
        self._wanted = [*wanted, *(each for each in own if takes_all and each not in wanted)]

    @property
    def wants_media(self) -> bool:
        """Whether the function looks at images or videos."""
        return bool({"images", "videos"} & set(self._wanted))

    def score(self, inputs: RewardInputs) -> Rewards:
        """Rewards of all samples. If the function fails on the batch, each is scored alone."""
        if len(inputs) == 0:
            return Rewards([], {})
        try:
            return checked(self._call(inputs), len(inputs), self._token_counts(inputs))
        except Exception as error:  # a user's function: anything may come, and is reported
            if len(inputs) == 1:
                return fault(error)
        return Rewards.joined([self.score(inputs.only(index)) for index in range(len(inputs))])

    def _call(self, inputs: RewardInputs) -> object:
        if not self._is_per_sample:
            columns = {name: getattr(inputs, name) for name in self._wanted}
            return _finished([self._function(**columns, **self._arguments)])[0]
        rows = [self._row(inputs, index) for index in range(len(inputs))]
        return _finished([self._function(**row) for row in rows])

    def _row(self, inputs: RewardInputs, index: int) -> dict[str, object]:
        names = {name: _OF_ONE_SAMPLE.get(name, name) for name in self._wanted}
        return self._arguments | {
            name: getattr(inputs, column)[index] for name, column in names.items()
        }

    @staticmethod
    def _token_counts(inputs: RewardInputs) -> list[int] | None:
        return [len(tokens) for tokens in inputs.response_token_ids] or None


def _wanted(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The arguments that a run must give: those about samples, and those without a default."""
    about_samples = (*_COLUMNS, *_OF_ONE_SAMPLE)
    return [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and (parameter.name in about_samples or parameter.default is parameter.empty)
    ]


def _check_own_arguments(
    parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, object], error: str
) -> None:
    own = [name for name in parameters if name not in (*_COLUMNS, *_OF_ONE_SAMPLE)]
    for name in arguments:
        if name not in own:
            raise UserError(
                f"{error}: it has no argument {name} to set; "
                f"its own are {', '.join(own) if own else 'none'}"
            )


def _finished(results: list[object]) -> list[object]:
    """The results of calls, awaited side by side where the function is async.

    In a thread of its own, as this one may have a running loop already: a notebook's does.
    """
    awaitable = [each for each in results if inspect.isawaitable(each)]
    if not awaitable:
        return results
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, _gathered(awaitable)).result()


async def _gathered(results: list[Awaitable[object]]) -> list[object]:
    return list(await asyncio.gather(*results))
