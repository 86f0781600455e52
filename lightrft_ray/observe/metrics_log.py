"""The step records of a run on disk, and their way to trackers."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.background import Background
from lightrft_ray.observe.jsonl import append_line, open_steps, parse_step
from lightrft_ray.observe.names import Record, check_record, in_table_order
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.trackers import OpenTracker

_WAITING_RECORDS = 1000


class MetricsLog:
    """Appends one JSON object a step to metrics.jsonl, and hands it to trackers.

    A resumed run goes on in the same file: records of steps past `after_step`, where it is given,
    are removed first, for they will be written again.

    A disk that refuses metrics.jsonl is an OSError, for checkpoints would fail on it as well.
    Trackers are a convenience, each in a thread of its own: when one fails, or hangs, `report` gets
    one line and the run goes on without.
    """

    def __init__(
        self,
        output_dir: Path,
        trackers: Mapping[str, OpenTracker] | None = None,
        report: Callable[[str], None] = print,
        after_step: int | None = None,
    ) -> None:
        self._path = RunFolder(output_dir).metrics
        self._file = open_steps(self._path, after_step)
        self._openers = dict(trackers or {})
        self._report = report
        self._trackers = self._open_trackers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def background_seconds(self) -> float:
        """What the threads of its trackers took of a core so far."""
        return sum(tracker.cpu_seconds for tracker in self._trackers)

    def log(self, record: Record) -> None:
        """Append `record`, with its names in table order and NaN and infinities as null.

        Raises ValueError when the record has no step or a name that `names.METRICS` lacks.
        """
        check_record(record)
        ordered = {name: record[name] for name in in_table_order(record)}
        append_line(self._file, ordered)
        for tracker in self._trackers:
            tracker.put(ordered)

    def rewind(self, after_step: int) -> None:
        """Forget the records of steps past `after_step`: they will be written again."""
        self.close()
        self._file = open_steps(self._path, after_step)
        # Opened anew, trackers that know of earlier attempts go on where this one begins.
        self._trackers = self._open_trackers()

    def close(self) -> None:
        """Close the file and have trackers finish; a second call does nothing."""
        self._file.close()
        for tracker in self._trackers:
            tracker.close()

    def _open_trackers(self) -> list[Background[Record]]:
        return [
            Background(
                name, opener, self._report, capacity=_WAITING_RECORDS, is_dropped_when_late=True
            )
            for name, opener in self._openers.items()
        ]


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read the records of a metrics.jsonl, null as NaN, in the order of their steps.

    A last line cut short by a killed run is left out. Where a run was resumed at an earlier step,
    the records it wrote again replace the abandoned ones from that step on.
    Raises UserError when the file is missing or holds anything but step records.
    """
    if not path.is_file():
        raise UserError(f"there is no metrics file {path}: give the one that a run wrote")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    records: list[dict[str, float]] = []
    for number, line in enumerate(lines, start=1):
        record = _parse(line)
        if record is None:
            if line.endswith("\n"):
                raise UserError(f"line {number} of {path} is not a step record: remove that line")
            break
        while records and records[-1]["step"] >= record["step"]:
            records.pop()
        records.append(record)
    return records


def _parse(line: str) -> dict[str, float] | None:
    record = parse_step(line)
    if record is None:
        return None
    return {name: math.nan if x is None else x for name, x in record.items()}
