"""Seconds by phase of a step, and when each phase was."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the time of named phases since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._phases: dict[str, float] = {}
        self.started = time.time()
        """When it was made, in seconds since 1970."""
        self.spans: list[tuple[str, float, float]] = []
        """Each phase, its start and its end, in seconds since 1970."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        start, start_of_day = time.perf_counter(), time.time()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._phases[name] = self._phases.get(name, 0.0) + elapsed
            self.spans.append((name, start_of_day, start_of_day + elapsed))

    def as_record(self) -> dict[str, float]:
        """Metrics by name: seconds of each phase, and of the whole step until now."""
        phases = {f"time/{name}": seconds for name, seconds in self._phases.items()}
        return {**phases, "time/step": time.perf_counter() - self._start}
