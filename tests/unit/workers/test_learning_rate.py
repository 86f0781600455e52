"""The course of the learning rate."""

import pytest

from lightrft_ray.config import TrainerConfig
from lightrft_ray.workers.learning_rate import learning_rate_factor


def _course(total: int, steps: range, **settings: object) -> list[float]:
    factor = learning_rate_factor(TrainerConfig(**settings), total)
    return [factor(step) for step in steps]


def test_constant() -> None:
    assert _course(5, range(8)) == [1.0] * 8


def test_linear_ends_at_0() -> None:
    course = _course(4, range(6), lr_scheduler="linear")
    assert course == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])


def test_cosine_ends_at_0() -> None:
    course = _course(4, range(6), lr_scheduler="cosine")
    half = 2**0.5 / 4
    assert course == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half, 0, 0])


@pytest.mark.parametrize(
    ("scheduler", "after"),
    [("constant", [1, 1, 1]), ("linear", [1, 0.5, 0]), ("cosine", [1, 0.5, 0])],
)
def test_warm_up_rises_to_the_peak_and_takes_no_step_at_0(
    scheduler: str, after: list[float]
) -> None:
    course = _course(5, range(6), lr_warmup_steps=3, lr_scheduler=scheduler)
    assert course == pytest.approx([0.25, 0.5, 0.75, *after])


def test_a_warm_up_as_long_as_the_run() -> None:
    course = _course(2, range(4), lr_warmup_steps=2, lr_scheduler="linear")
    assert course == pytest.approx([1 / 3, 2 / 3, 1, 0])
