"""Phases add up."""

import time

import pytest

from lightrft_ray.driver.stopwatch import Stopwatch


def test_phases_of_one_name_add_up() -> None:
    watch = Stopwatch()
    for _ in range(2):
        with watch.phase("train"):
            time.sleep(0.02)
    with watch.phase("eval"):
        pass
    record = watch.as_record()
    assert record.keys() == {"time/train", "time/eval", "time/step"}
    assert record["time/train"] >= 0.04
    assert record["time/step"] >= record["time/train"] + record["time/eval"]


def test_a_phase_that_fails_is_timed() -> None:
    watch = Stopwatch()
    with pytest.raises(KeyError), watch.phase("score"):
        time.sleep(0.01)
        raise KeyError
    assert watch.as_record()["time/score"] >= 0.01
