"""Who was busy when: the spans of each step, one JSON object a line."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightrft_ray.observe.jsonl import append_line, open_steps

_DIGITS = 4  # of a second's fraction


class Span(NamedTuple):
    """Work of one process: `who` is "driver" or a role and its place ("generator/0").

    `start` and `end` are seconds since 1970, by the clock of the process's machine.
    """

    who: str
    phase: str
    start: float
    end: float


class Timeline:
    """Appends to timeline.jsonl; times are written as seconds since the run's start.

    Raises OSError as files do.
    """

    def __init__(self, path: Path, started_at: float, after_step: int | None = None) -> None:
        self._path = path
        self._started_at = started_at
        self._file = open_steps(path, after_step)

    def log(self, step: int, spans: Sequence[Span]) -> None:
        """Append a step's spans in the order of their starts."""
        ordered = sorted(spans, key=lambda span: (span.start, span.who))
        append_line(self._file, {"step": step, "spans": [self._entry(span) for span in ordered]})

    def rewind(self, after_step: int) -> None:
        """Forget the spans of later steps."""
        self._file.close()
        self._file = open_steps(self._path, after_step)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def _entry(self, span: Span) -> dict[str, str | float]:
        times = {"start": span.start, "end": span.end}
        since = {name: round(time - self._started_at, _DIGITS) for name, time in times.items()}
        return {"who": span.who, "phase": span.phase, **since}
