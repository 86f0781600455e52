"""Work that training must neither wait for nor fail by: each kind in a thread of its own."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Taken = TypeVar("Taken", contravariant=True)  # noqa: PLC0105 - a protocol's, seen nowhere else
_CLOSE_TIMEOUT = 30.0  # s: what hangs then is left behind, for its thread is a daemon


class Sink(Protocol[Taken]):
    """What takes items one by one."""

    def write(self, item: Taken, /) -> None: ...
    def close(self) -> None: ...


class Background(Generic[Item]):
    """Opens a sink and hands it items, all in one thread.

    Whatever goes wrong there, a broken installation included, is told to `report` once, and the
    sink gets nothing more: no fault of it is worth a training run. So it is with a sink so slow
    that `capacity` items wait for it, where `is_dropped_when_late`; else the newest is left out.
    """

    def __init__(
        self,
        name: str,
        open_sink: Callable[[], Sink[Item]],
        report: Callable[[str], None],
        *,
        capacity: int,
        is_dropped_when_late: bool,
    ) -> None:
        self._name = name
        self._open_sink = open_sink
        self._report = report
        self._is_dropped_when_late = is_dropped_when_late
        self._queue: queue.Queue[Item | None] = queue.Queue(capacity)
        self._ended = threading.Event()
        self._said_late = False
        self.cpu_seconds = 0.0
        """What the thread took of a core so far."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand over an item; never waits."""
        if self._ended.is_set():
            return
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._be_late()

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Let it finish what waits, within `timeout` seconds; a second call does nothing."""
        deadline = time.monotonic() + timeout
        if not self._ended.is_set() and self._thread.is_alive():
            with contextlib.suppress(queue.Full):  # said below, as of any that hangs
                self._queue.put(None, timeout=timeout)
        self._thread.join(max(deadline - time.monotonic(), 0.1))
        if self._thread.is_alive() and not self._ended.is_set():
            self._end(f"does not end within {timeout:g} s")

    def _run(self) -> None:
        try:
            sink = self._open_sink()
            self.cpu_seconds = time.thread_time()
            try:
                self._serve(sink)
            finally:
                sink.close()
        # The one place that catches everything, as the class says.
        except Exception as error:
            self._end(f"stops: {error!r}")
        self._ended.set()

    def _serve(self, sink: Sink[Item]) -> None:
        while (item := self._queue.get()) is not None and not self._ended.is_set():
            sink.write(item)
            self.cpu_seconds = time.thread_time()

    def _be_late(self) -> None:
        waiting = f"{self._queue.qsize()} steps wait for it"
        if self._is_dropped_when_late:
            self._end(f"stops: {waiting}")
        elif not self._said_late:
            self._said_late = True
            self._report(f"{self._name} leaves steps out: {waiting}")

    def _end(self, why: str) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._report(f"{self._name} {why}; the run goes on without")
