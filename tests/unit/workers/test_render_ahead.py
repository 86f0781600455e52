"""Rendering ahead: in order, within its memory, and without a trace but in time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lightrft_ray.config.errors import DataFault
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.workers.render_ahead import RenderAhead

SIZE = 10  # bytes of a rendered prompt


@dataclass(frozen=True)
class Picture:
    name: str
    nbytes: int = SIZE


class Renderer:
    """Renders what it is allowed to, in this process; `broken` cannot be."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def render(self, prompt: Prompt) -> Picture:
        self.begun.append(prompt.id)
        await self.gate.wait()
        if prompt.id == "broken":
            raise DataFault("prompt broken: no such image")
        return Picture(prompt.id)


def _prompts(names: str | Sequence[str]) -> list[Prompt]:
    message = {"role": "user", "content": "q"}
    return [Prompt(each, (message,), (f"{each}.png",), Path(), "", "") for each in names]


def _run(test: Callable[[Renderer], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(Renderer())

    asyncio.run(run())


async def _settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_prompts_are_made_ready_in_order_as_far_as_memory_goes() -> None:
    async def test(renderer: Renderer) -> None:
        ahead = RenderAhead(renderer.render, limit=3 * SIZE, together=1)
        prompts = _prompts("abcdef")
        ahead.begin(prompts)
        await _settle()
        assert (renderer.begun, ahead.nbytes) == (list("abc"), 3 * SIZE)
        task = ahead.claim(prompts[1])
        assert task is not None and await task == Picture("b")
        await _settle()
        assert (renderer.begun, ahead.nbytes) == (list("abcd"), 3 * SIZE)
        assert ahead.claim(prompts[1]) is None  # it is the caller's now

    _run(test)


def test_no_more_are_rendered_together_than_allowed() -> None:
    async def test(renderer: Renderer) -> None:
        renderer.gate.clear()
        ahead = RenderAhead(renderer.render, limit=100 * SIZE, together=2)
        ahead.begin(_prompts("abcd"))
        await _settle()
        assert renderer.begun == ["a", "b"]
        task = ahead.claim(_prompts("a")[0])  # under way: it is waited for, not done twice
        assert task is not None and not task.done()
        renderer.gate.set()
        assert await task == Picture("a")
        await _settle()
        assert renderer.begun == list("abcd")

    _run(test)


def test_what_is_asked_for_before_its_turn_is_left_to_the_caller() -> None:
    async def test(renderer: Renderer) -> None:
        renderer.gate.clear()
        ahead = RenderAhead(renderer.render, limit=100 * SIZE, together=1)
        ahead.begin(_prompts("abc"))
        assert ahead.claim(_prompts("b")[0]) is None
        renderer.gate.set()
        await _settle()
        assert renderer.begun == ["a", "c"]

    _run(test)


def test_new_prompts_take_the_place_of_those_that_nobody_asked_for() -> None:
    async def test(renderer: Renderer) -> None:
        ahead = RenderAhead(renderer.render, limit=3 * SIZE, together=1)
        ahead.begin(_prompts("abc"))
        await _settle()
        ahead.begin(_prompts("cde"))
        await _settle()
        assert (renderer.begun, ahead.nbytes) == (list("abcde"), 3 * SIZE)
        assert ahead.claim(_prompts("a")[0]) is None
        task = ahead.claim(_prompts("c")[0])
        assert task is not None and task.done()

    _run(test)


def test_another_prompt_of_that_name_and_one_without_media_are_not_ahead() -> None:
    async def test(renderer: Renderer) -> None:
        (prompt,) = _prompts("a")
        ahead = RenderAhead(renderer.render, limit=3 * SIZE, together=1)
        ahead.begin([replace(prompt, id="text", images=()), prompt])
        await _settle()
        assert renderer.begun == ["a"]
        assert ahead.claim(replace(prompt, images=("other.png",))) is None
        assert ahead.claim(prompt) is not None

    _run(test)


def test_a_fault_is_raised_when_its_prompt_is_asked_for() -> None:
    async def test(renderer: Renderer) -> None:
        ahead = RenderAhead(renderer.render, limit=3 * SIZE, together=1)
        prompts = _prompts(["broken", "good"])
        ahead.begin(prompts)
        await _settle()
        assert renderer.begun == ["broken", "good"]
        task = ahead.claim(prompts[0])
        assert task is not None
        with pytest.raises(DataFault, match="no such image"):
            await task

    _run(test)


def test_without_memory_nothing_is_ahead() -> None:
    async def test(renderer: Renderer) -> None:
        ahead = RenderAhead(renderer.render, limit=0, together=2)
        ahead.begin(_prompts("ab"))
        await _settle()
        assert renderer.begun == [] and ahead.claim(_prompts("a")[0]) is None

    _run(test)
