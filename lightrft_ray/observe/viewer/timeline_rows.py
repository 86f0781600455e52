"""Who was busy when, a few steps at a time."""

import re
from itertools import islice
from pathlib import Path
from threading import Lock

from pydantic import BaseModel, FiniteFloat, ValidationError

_STEP = re.compile(rb'"step":\s*(\d+)')


class Span(BaseModel):
    """What one worker did from `start` to `end`, in seconds since the start of the run."""

    who: str
    phase: str
    start: FiniteFloat
    end: FiniteFloat


class StepSpans(BaseModel):
    """The spans of one step."""

    step: int
    spans: list[Span]


class TimelineRows:
    """Reads lines of a timeline.jsonl by step.

    It remembers where each line lies and reads only what was added since, for the file of a long
    run is large and the page asks for a few steps of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._places: dict[int, tuple[int, int]] = {}
        self._end = 0

    def read(self, start: int, count: int) -> list[StepSpans]:
        """Up to `count` steps from `start` on; fewer where they are missing or damaged."""
        with self._lock:
            places = self._update()
        wanted = islice((step for step in sorted(places) if step >= start), count)
        rows = {step: self._row(*places[step]) for step in wanted}
        return [row for step, row in rows.items() if row is not None and row.step == step]

    def steps(self) -> list[int]:
        """The steps that have a line, in order."""
        with self._lock:
            return sorted(self._update())

    def _update(self) -> dict[int, tuple[int, int]]:
        size = self._path.stat().st_size if self._path.is_file() else 0
        if size < self._end:  # another run in the same place, or one that was resumed
            self._places, self._end = {}, 0
        if size > self._end:
            with self._path.open("rb") as file:
                file.seek(self._end)
                for line in file:
                    self._note(line)
        return dict(self._places)

    def _note(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return
        step = _STEP.search(line)
        if step is not None:
            self._places[int(step[1])] = (self._end, len(line))
        self._end += len(line)

    def _row(self, offset: int, length: int) -> StepSpans | None:
        with self._path.open("rb") as file:
            file.seek(offset)
            line = file.read(length)
        try:
            return StepSpans.model_validate_json(line)
        except ValidationError:
            return None
