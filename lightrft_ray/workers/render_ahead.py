"""Prompts of a coming call, read, decoded and processed while the engine still samples."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from lightrft_ray.data.prompts import Prompt


class Rendered(Protocol):
    """What rendering gives."""

    @property
    def nbytes(self) -> int:
        """Its size in memory."""


Result = TypeVar("Result", bound=Rendered)


@dataclass
class _Begun(Generic[Result]):
    prompt: Prompt
    task: asyncio.Task[Result]
    nbytes: int = 0  # once it is done


class RenderAhead(Generic[Result]):
    """Makes prompts ready before they are asked for, in their order.

    What is ready and was not asked for yet takes at most `limit` bytes, and `together` prompts
    more: those that are being rendered. A prompt's fault is raised when the prompt is asked for.
    What was not foreseen is rendered as if nothing were ahead, so that only time depends on it.
    """

    def __init__(
        self,
        render: Callable[[Prompt], Coroutine[Any, Any, Result]],
        limit: int,
        together: int,
    ) -> None:
        self._render = render
        self._limit = limit
        self._together = together
        self._waiting: dict[str, Prompt] = {}
        self._begun: dict[str, _Begun[Result]] = {}
        self._running = 0

    @property
    def nbytes(self) -> int:
        """Size of what is ready and was not asked for yet."""
        return sum(begun.nbytes for begun in self._begun.values())

    def begin(self, prompts: Sequence[Prompt]) -> None:
        """Make those of the prompts ready that have media, and drop what is none of them."""
        wanted = {each.id: each for each in prompts if each.images or each.videos}
        for name, begun in list(self._begun.items()):
            if wanted.get(name) == begun.prompt:
                del wanted[name]
            else:
                del self._begun[name]
                begun.task.cancel()
        self._waiting = wanted
        self._advance()

    def claim(self, prompt: Prompt) -> asyncio.Task[Result] | None:
        """The prompt that is ready or being made so, which it forgets; None for any other."""
        if self._waiting.get(prompt.id) == prompt:
            del self._waiting[prompt.id]
        begun = self._begun.get(prompt.id)
        if begun is None or begun.prompt != prompt:
            return None
        del self._begun[prompt.id]
        self._advance()
        return begun.task

    def _advance(self) -> None:
        while self._waiting and self._running < self._together and self.nbytes < self._limit:
            name = next(iter(self._waiting))
            prompt = self._waiting.pop(name)
            begun = _Begun(prompt, asyncio.create_task(self._render(prompt)))
            self._begun[name] = begun
            self._running += 1
            begun.task.add_done_callback(partial(self._ended, begun))

    def _ended(self, begun: _Begun[Result], task: asyncio.Task[Result]) -> None:
        self._running -= 1
        if not task.cancelled() and task.exception() is None:
            begun.nbytes = task.result().nbytes
        self._advance()
