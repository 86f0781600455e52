"""A worker whose engine is dead ends: whoever waits for it is told at once."""

import functools
import os
from collections.abc import Awaitable, Callable
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

from vllm.v1.engine.exceptions import EngineDeadError

_ENGINE_DIED = 70  # exit status


class CountsCalls(Protocol):
    """What has an engine of vLLM and counts the calls that wait for it."""

    calls: int


Self = TypeVar("Self", bound=CountsCalls)
P = ParamSpec("P")
T = TypeVar("T")


def dies_with_engine(
    method: Callable[Concatenate[Self, P], Awaitable[T]],
) -> Callable[Concatenate[Self, P], Awaitable[T]]:
    """End this process where the engine's are gone.

    Of a dead engine, vLLM fails some of the calls that wait for it and leaves others waiting.
    """

    @functools.wraps(method)
    async def guarded(self: Self, *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        try:
            return await method(self, *args, **kwargs)
        except EngineDeadError:
            leave()
        finally:
            self.calls -= 1

    return guarded


def leave() -> NoReturn:
    """End this process: its engine is dead."""
    os._exit(_ENGINE_DIED)
