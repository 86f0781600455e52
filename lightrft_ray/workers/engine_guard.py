"""A worker whose engine is dead ends: whoever waits for it is told at once."""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

from vllm.v1.engine.exceptions import EngineDeadError

from lightrft_ray.config import DataFault, UserError

_ENGINE_DIED = 70  # exit status
_LOOKS, _LOOK_EVERY = 10, 0.2  # s: a worker's end is known after some tenths of a second


class CountsCalls(Protocol):
    """What has an engine of vLLM and counts the calls that wait for it."""

    calls: int

    def is_engine_dead(self) -> bool:
        """Whether vLLM knows that a process of the engine is gone."""
        ...


Self = TypeVar("Self", bound=CountsCalls)
P = ParamSpec("P")
T = TypeVar("T")


def dies_with_engine(
    method: Callable[Concatenate[Self, P], Awaitable[T]],
) -> Callable[Concatenate[Self, P], Awaitable[T]]:
    """End this process where the engine's are gone.

    Of a dead engine, vLLM fails some of the calls that wait for it and leaves others waiting. One
    whose worker has just died fails calls like any other error before it is known to be dead.
    """

    @functools.wraps(method)
    async def guarded(self: Self, *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        try:
            return await method(self, *args, **kwargs)
        except EngineDeadError:
            leave()
        except (UserError, DataFault):
            raise
        except Exception:
            for _ in range(_LOOKS):
                if self.is_engine_dead():
                    leave()
                await asyncio.sleep(_LOOK_EVERY)
            raise
        finally:
            self.calls -= 1

    return guarded


def leave() -> NoReturn:
    """End this process: its engine is dead."""
    os._exit(_ENGINE_DIED)
