"""What is done around DeepSpeed, without a process group."""

import math
from collections.abc import Iterator

import pytest

from lightrft_ray.config import ModelConfig, RunConfig, TrainerConfig
from lightrft_ray.workers.deepspeed_engine import (
    _is_finite,
    _marking_last,
    deepspeed_settings,
    interface_towards,
)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_last_item_is_marked(count: int) -> None:
    marked = list(_marking_last(range(count)))
    assert marked == [(index, index == count - 1) for index in range(count)]


def test_items_are_taken_one_ahead() -> None:
    """A micro-batch's media must not all be in memory at once."""
    taken = []

    def items() -> Iterator[int]:
        for index in range(5):
            taken.append(index)
            yield index

    for index, _ in _marking_last(items()):
        assert taken == list(range(min(index + 2, 5)))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_settings_follow_the_configuration(stage: int) -> None:
    trainer = TrainerConfig(zero_stage=stage, max_norm=0.5)
    settings = deepspeed_settings(RunConfig(trainer=trainer))
    assert settings["zero_optimization"] == {"stage": stage}
    assert settings["gradient_clipping"] == 0.5
    # A step's micro-batches are weighted by global counts: DeepSpeed must not average them again.
    assert settings["gradient_accumulation_steps"] == 1
    assert settings["bf16"]["enabled"] is False


def test_half_precision_checks_for_overflow() -> None:
    settings = deepspeed_settings(RunConfig(model=ModelConfig(dtype="bfloat16")))
    assert settings["bf16"] == {"enabled": True, "check_grad_overflow": True}


@pytest.mark.parametrize(
    ("norm", "finite"),
    [(0.0, True), (3.5, True), (-1.0, False), (math.inf, False), (math.nan, False)],
)
def test_a_norm_that_tells_of_an_overflow(norm: float, finite: bool) -> None:
    assert _is_finite(norm) is finite


def test_this_machine_is_reached_over_its_loopback() -> None:
    assert interface_towards("127.0.0.1", 1) == "lo"
