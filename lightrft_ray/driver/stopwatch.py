"""Seconds by phase of a step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the time of named phases since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._phases[name] = self._phases.get(name, 0.0) + elapsed

    def as_record(self) -> dict[str, float]:
        """Metrics by name: seconds of each phase, and of the whole step until now."""
        phases = {f"time/{name}": seconds for name, seconds in self._phases.items()}
        return {**phases, "time/step": time.perf_counter() - self._start}
