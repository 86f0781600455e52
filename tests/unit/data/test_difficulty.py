"""Prompts by difficulty: how often each is taken, and that a resumed stream goes on exactly."""

import json
import math
from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.difficulty import PassRates
from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.data.prompts import Prompt

_FLOOR = 0.2


def _source(count: int = 4, memory: float = 0.0) -> PromptSource:
    message = {"role": "user", "content": "q"}
    prompts = [Prompt(f"p{i}", (message,), (), Path(), "", "") for i in range(count)]
    return PromptSource(prompts, 1, PassRates(1, floor=_FLOOR, memory=memory))


def test_prompts_are_taken_by_the_variance_of_their_reward() -> None:
    source, rates = _source(), [0.0, 1.0, 0.5, 0.9]
    for index, rate in enumerate(rates):
        source.note(f"p{index}", rate)
    taken = source.take(4000)
    epochs = taken[-1][1] + 1
    for index, rate in enumerate(rates):
        chance = _FLOOR + (1 - _FLOOR) * 4 * rate * (1 - rate)
        deviation = math.sqrt(chance * (1 - chance) / epochs)
        share = sum(prompt.id == f"p{index}" for prompt, _ in taken) / epochs
        assert abs(share - chance) <= 4 * deviation + 1 / epochs
    passed_over = source.as_record()["data/passed_over"]
    assert len(taken) + passed_over == pytest.approx(4 * epochs, abs=4)


def test_what_is_not_known_yet_is_always_taken() -> None:
    assert {prompt.id for prompt, _ in _source(9).take(9)} == {f"p{i}" for i in range(9)}


def test_a_pass_rate_is_an_exponential_mean_that_starts_at_the_first() -> None:
    source = _source(memory=0.75)
    assert math.isnan(source.as_record()["data/pass_rate_mean"])
    for rate in (1.0, 0.0, 0.5):
        source.note("p0", rate)
    expected = 0.75 * (0.75 * 1.0) + 0.25 * 0.5
    assert source.as_record() == {"data/passed_over": 0, "data/pass_rate_mean": expected}


@pytest.mark.parametrize("before", [0, 3, 17])
def test_a_saved_stream_goes_on_exactly(before: int) -> None:
    def step(source: PromptSource, count: int) -> list[tuple[str, int]]:
        taken = source.take(count)
        for prompt, epoch in taken:
            source.note(prompt.id, (len(prompt.id) + epoch * 7 + int(prompt.id[1:])) % 5 / 4)
        return [(prompt.id, epoch) for prompt, epoch in taken]

    source, resumed = (_source(5, memory=0.5) for _ in range(2))
    step(source, before)
    state = json.loads(json.dumps(source.state_dict()))
    step(resumed, 4)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert [step(resumed, 5) for _ in range(6)] == [step(source, 5) for _ in range(6)]


def test_a_stream_of_the_other_kind_is_refused() -> None:
    by_difficulty = _source()
    uniform = PromptSource([prompt for prompt, _ in _source().take(4)], 1)
    with pytest.raises(UserError, match=r"set data\.prompt_sampling to difficulty"):
        uniform.load_state_dict(by_difficulty.state_dict())
    with pytest.raises(UserError, match=r"set data\.prompt_sampling to uniform"):
        by_difficulty.load_state_dict(uniform.state_dict())
