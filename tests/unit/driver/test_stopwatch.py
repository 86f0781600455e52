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


def test_each_phase_is_a_span_of_the_day() -> None:
    before = time.time()
    watch = Stopwatch()
    for name in ("train", "eval", "train"):
        with watch.phase(name):
            time.sleep(0.002)
    assert [name for name, _, _ in watch.spans] == ["train", "eval", "train"]
    ends = [moment for _, start, end in watch.spans for moment in (start, end)]
    assert before <= watch.started <= ends[0]
    assert ends == sorted(ends)


def test_a_phase_that_fails_is_timed() -> None:
    watch = Stopwatch()
    with pytest.raises(KeyError), watch.phase("score"):
        time.sleep(0.01)
        raise KeyError
    assert watch.as_record()["time/score"] >= 0.01
