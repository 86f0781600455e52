"""Step records as TensorBoard events, written with TensorBoard's own protocol and without torch."""

import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from lightrft_ray.observe.names import Record


class TensorBoardEvents:
    """One event file in `directory`, flushed after each record. Raises OSError as files do.

    Events are written in the caller's thread: at one record a step a queue would only delay errors.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._file = (directory / name).open("wb")
        self._writer = RecordWriter(self._file)
        self._started = False
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, record: Record) -> None:
        """Write every number of `record` as a scalar at its step."""
        step = int(record["step"])
        if not self._started:
            # Tells TensorBoard to forget what an earlier, abandoned run logged from this step on.
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=step, session_log=start))
            self._started = True
        values = [
            Summary.Value(tag=name, simple_value=x) for name, x in record.items() if name != "step"
        ]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._file.flush()

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        self._writer.write(event.SerializeToString())
