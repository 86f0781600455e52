"""The step records of a run on disk: metrics.jsonl, and TensorBoard events where wanted."""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.jsonl import append_line, open_steps, parse_step
from lightrft_ray.observe.names import Record, check_record, in_table_order
from lightrft_ray.observe.run_folder import RunFolder

if TYPE_CHECKING:
    from lightrft_ray.observe.tensorboard_events import TensorBoardEvents

logger = logging.getLogger(__name__)


class MetricsLog:
    """Appends one JSON object a step to metrics.jsonl.

    A resumed run goes on in the same file: records of steps past `after_step`, where it is given,
    are removed first, for they will be written again.

    A disk that refuses metrics.jsonl is an OSError, for checkpoints would fail on it as well.
    TensorBoard is a convenience: when it fails, `report` gets one line and the run goes on without.
    """

    def __init__(
        self,
        output_dir: Path,
        use_tensorboard: bool = False,
        report: Callable[[str], None] = logger.warning,
        after_step: int | None = None,
    ) -> None:
        folder = RunFolder(output_dir)
        self._file = open_steps(folder.metrics, after_step)
        self._tensorboard_dir = folder.tensorboard if use_tensorboard else None
        self._tensorboard: TensorBoardEvents | None = None
        self._report = report

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def log(self, record: Record) -> None:
        """Append `record`, with its names in table order and NaN and infinities as null.

        Raises ValueError when the record has no step or a name that `names.METRICS` lacks.
        """
        check_record(record)
        ordered = {name: record[name] for name in in_table_order(record)}
        append_line(self._file, ordered)
        self._track(ordered)

    def rewind(self, after_step: int) -> None:
        """Forget the records of steps past `after_step`: they will be written again."""
        path = Path(self._file.name)
        self.close()
        self._file = open_steps(path, after_step)
        self._tensorboard = None  # a new file of events tells TensorBoard to forget them as well

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _track(self, record: Record) -> None:
        if self._tensorboard_dir is None:
            return
        # The one place that catches everything, a broken installation included: no fault of a
        # tracker is worth a training run.
        try:
            if self._tensorboard is None:
                from lightrft_ray.observe.tensorboard_events import TensorBoardEvents

                self._tensorboard = TensorBoardEvents(self._tensorboard_dir)
            self._tensorboard.write(record)
        except Exception as error:
            self._tensorboard_dir = None
            self._report(f"TensorBoard events stop at step {record['step']:.0f}: {error!r}")


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
