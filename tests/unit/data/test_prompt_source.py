"""The stream of prompts is complete, shuffled, reproducible and resumable at any point."""

import json
from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.data.prompts import Prompt


def _prompts(count: int) -> list[Prompt]:
    message = {"role": "user", "content": "q"}
    return [Prompt(f"p{i}", (message,), (), Path(), "", "") for i in range(count)]


def _ids(source: PromptSource, count: int) -> list[tuple[str, int]]:
    return [(prompt.id, epoch) for prompt, epoch in source.take(count)]


def test_every_epoch_holds_every_prompt_once_in_its_own_order() -> None:
    source = PromptSource(_prompts(20), seed=1)
    epochs = [_ids(source, 20) for _ in range(3)]
    for number, epoch in enumerate(epochs):
        assert {name for name, _ in epoch} == {f"p{i}" for i in range(20)}
        assert {index for _, index in epoch} == {number}
    orders = [tuple(name for name, _ in epoch) for epoch in epochs]
    assert len({*orders, tuple(f"p{i}" for i in range(20))}) == 4


def test_the_order_is_pinned_and_does_not_depend_on_the_file() -> None:
    """A change here would make checkpoints of earlier runs resume with other prompts."""
    expected = [("p2", 0), ("p3", 0), ("p4", 0), ("p0", 0), ("p1", 0)]
    assert _ids(PromptSource(_prompts(5), seed=1), 5) == expected
    assert _ids(PromptSource(_prompts(5)[::-1], seed=1), 5) == expected
    assert _ids(PromptSource(_prompts(5), seed=2), 5) != expected


def test_how_much_is_taken_at_once_does_not_matter() -> None:
    whole = _ids(PromptSource(_prompts(5), seed=1), 23)
    source = PromptSource(_prompts(5), seed=1)
    assert [each for count in (1, 5, 0, 12, 5) for each in _ids(source, count)] == whole


@pytest.mark.parametrize("before", [0, 3, 5, 10, 12])
def test_a_saved_cursor_goes_on_exactly(before: int) -> None:
    source = PromptSource(_prompts(5), seed=1)
    source.take(before)
    state = json.loads(json.dumps(source.state_dict()))
    resumed = PromptSource(_prompts(5)[::-1], seed=1)
    resumed.take(4)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert _ids(resumed, 11) == _ids(source, 11)


@pytest.mark.parametrize(("count", "seed", "name"), [(5, 2, "seed"), (6, 1, "prompts")])
def test_a_cursor_of_another_stream_is_refused(count: int, seed: int, name: str) -> None:
    state = PromptSource(_prompts(5), seed=1).state_dict()
    with pytest.raises(UserError, match=f"the checkpoint's {name}"):
        PromptSource(_prompts(count), seed).load_state_dict(state)


def test_no_prompts_are_an_error_and_no_endless_loop() -> None:
    with pytest.raises(UserError, match=r"data\.prompt_data"):
        PromptSource([], seed=1)


def test_two_prompts_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="not unique"):
        PromptSource(_prompts(2) + _prompts(1), seed=1)
