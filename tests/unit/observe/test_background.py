"""Work beside the training: it is told of when it fails or hangs, and nobody waits for it."""

import threading
import time

import pytest

from lightrft_ray.observe.background import Background


class _Sink:
    """Keeps what it gets; fails at an item "bad" and stops at "stop" until it is let go."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.is_closed = False
        self.go_on = threading.Event()

    def write(self, item: str, /) -> None:
        if item == "bad":
            raise OSError("no space left")
        if item == "stop":
            self.go_on.wait(10)
        self.items.append(item)

    def close(self) -> None:
        self.is_closed = True


def _background(
    sink: _Sink, reports: list[str], capacity: int = 10, dropped: bool = True
) -> Background[str]:
    return Background(
        "a tracker", lambda: sink, reports.append, capacity=capacity, is_dropped_when_late=dropped
    )


def test_items_come_in_order_and_all_of_them_before_it_is_closed() -> None:
    sink, reports = _Sink(), list[str]()
    background = _background(sink, reports)
    for item in "abc":
        background.put(item)
    background.close()
    background.close()
    assert (sink.items, sink.is_closed, reports) == (["a", "b", "c"], True, [])


def test_a_failure_is_told_once_and_ends_it() -> None:
    sink, reports = _Sink(), list[str]()
    background = _background(sink, reports)
    for item in ("a", "bad", "bad", "b"):
        background.put(item)
    background.close()
    assert sink.items == ["a"]
    assert sink.is_closed
    assert reports == ["a tracker stops: OSError('no space left'); the run goes on without"]


def test_one_that_cannot_be_opened_is_told_of() -> None:
    def refuse() -> _Sink:
        raise ImportError("no such package")

    reports: list[str] = []
    background = Background[str](
        "a tracker", refuse, reports.append, capacity=1, is_dropped_when_late=True
    )
    background.close()
    background.put("a")
    assert len(reports) == 1
    assert "no such package" in reports[0]


def test_nobody_waits_for_one_that_hangs() -> None:
    sink, reports = _Sink(), list[str]()
    background = _background(sink, reports)
    background.put("stop")
    start = time.monotonic()
    background.close(timeout=0.2)
    assert time.monotonic() - start < 5
    assert reports == ["a tracker does not end within 0.2 s; the run goes on without"]
    sink.go_on.set()


@pytest.mark.parametrize("dropped", [True, False])
def test_one_that_is_late_is_told_of_once(dropped: bool) -> None:
    sink, reports = _Sink(), list[str]()
    background = _background(sink, reports, capacity=2, dropped=dropped)
    background.put("stop")
    while not background._queue.empty():  # until its thread has begun
        time.sleep(0.01)
    for item in "abcd":
        background.put(item)
    sink.go_on.set()
    background.close()
    assert len(reports) == 1
    assert "2 steps wait" in reports[0]
    assert sink.items == (["stop"] if dropped else ["stop", "a", "b"])
