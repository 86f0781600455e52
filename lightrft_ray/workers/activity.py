"""What a worker did and when, noted by itself and fetched by the driver once a step."""

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from lightrft_ray.workers.gpu_memory import GpuMemory, OwnTensors
from lightrft_ray.workers.process_memory import process_tree_mb

P = ParamSpec("P")
R = TypeVar("R")

_MEMORY_EVERY = 10.0  # s: looking at all processes takes some milliseconds
_MOST_SPANS = 1000  # kept for a driver that does not ask


@dataclass(frozen=True)
class WorkDone:
    """A worker's spans (phase, start, end), times in seconds since 1970, since it was last asked.

    `memory_mb` is what the worker and its processes held at the end of a phase, for the phases at
    which that was looked at; `gpu_mb` the most that a phase took of a GPU, for workers with one.
    """

    spans: tuple[tuple[str, float, float], ...]
    memory_mb: dict[str, float]
    gpu_mb: dict[str, float] = field(default_factory=dict)

    def joined(self, later: "WorkDone") -> "WorkDone":
        """With what was fetched later."""
        return WorkDone(
            (*self.spans, *later.spans),
            self.memory_mb | later.memory_mb,
            _largest(self.gpu_mb, later.gpu_mb),
        )


@dataclass
class Activity:
    """Notes the spans of one worker, and the memory that `gpu` says its phases take."""

    gpu: GpuMemory = field(default_factory=OwnTensors)
    _spans: list[tuple[str, float, float]] = field(default_factory=list)
    _memory: dict[str, float] = field(default_factory=dict)
    _gpu_memory: dict[str, float] = field(default_factory=dict)
    _looked_at: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note a block's time, its GPU memory and, now and then, the memory at its end."""
        start = time.time()
        self.gpu.begin()
        try:
            yield
        finally:
            self._spans.append((name, start, time.time()))
            del self._spans[:-_MOST_SPANS]
            self._look_at_memory(name)
            self._look_at_gpu(name)

    def fetch(self) -> WorkDone:
        """What was noted since the last call."""
        done = WorkDone(tuple(self._spans), self._memory, self._gpu_memory)
        self._spans.clear()
        self._memory, self._gpu_memory = {}, {}
        return done

    def _look_at_memory(self, name: str) -> None:
        now = time.monotonic()
        if now - self._looked_at.get(name, float("-inf")) >= _MEMORY_EVERY:
            self._looked_at[name] = now
            self._memory[name] = process_tree_mb()

    def _look_at_gpu(self, name: str) -> None:
        taken = self.gpu.end_mb()
        if taken is not None:
            self._gpu_memory = _largest(self._gpu_memory, {name: taken})


def _largest(former: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    return {name: max(former.get(name, 0.0), later.get(name, 0.0)) for name in {**former, **later}}


class _Active(Protocol):
    _activity: Activity


def noted(phase: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Note a method's calls as work of a phase; its object has an `Activity` as `_activity`.

    Ray does not see what `ray.method` says of a method below this: there, note the phase inside.
    """

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def wait_noted(*arguments: P.args, **named: P.kwargs) -> Any:
                with cast(_Active, arguments[0])._activity.phase(phase):
                    return await method(*arguments, **named)

            return cast(Callable[P, R], wait_noted)

        @functools.wraps(method)
        def call_noted(*arguments: P.args, **named: P.kwargs) -> R:
            with cast(_Active, arguments[0])._activity.phase(phase):
                return method(*arguments, **named)

        return call_noted

    return decorate
