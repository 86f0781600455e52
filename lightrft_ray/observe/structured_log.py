"""Logs of driver and workers: one JSON object a line, with the run's id and the process's role.

What users' data and models say is cut short, and secrets are masked, whoever logs them.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from lightrft_ray.config.secrets import redact

RUN_ID = "LIGHTRFT_RUN_ID"
LEVEL = "LIGHTRFT_LOG_LEVEL"
ROLE = "LIGHTRFT_ROLE"
"""Variables of the environment by which a worker knows what to put into its log."""

logger = logging.getLogger(__name__)

_PACKAGE = "lightrft_ray"
_LONGEST_MESSAGE = 2000  # characters
_LONGEST_CONTENT = 200
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def shortened(content: str, longest: int = _LONGEST_CONTENT) -> str:
    """`content` of a user or model on one line, cut to `longest` characters with a note of it."""
    line = " ".join(content.split())
    if len(line) <= longest:
        return line
    return f"{line[:longest]}… ({len(content)} characters)"


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, run, role, process, logger, message.

    What a call gives as `extra` stands beside them, its texts cut short.
    """

    def __init__(self, run_id: str, role: str) -> None:
        super().__init__()
        self._fixed = {"run_id": run_id, "role": role, "pid": os.getpid()}

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._fixed,
            "logger": record.name,
            "message": shortened(redact(record.getMessage()), _LONGEST_MESSAGE),
        }
        entry |= {
            name: shortened(redact(value)) if isinstance(value, str) else value
            for name, value in vars(record).items()
            if name not in _OWN and not name.startswith("_")  # Ray adds such to all records
        }
        if record.exc_info:
            entry["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)


@contextmanager
def logged(path: Path, run_id: str, level: str) -> Iterator[None]:
    """Have this process's package log to a file inside the block, as the run's driver.

    An exception that ends the block is logged with its traceback.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    _install(handler, run_id, "driver", level)
    try:
        yield
    except BaseException as error:
        logger.error("the run ends: %s", type(error).__name__, exc_info=True)
        raise
    finally:
        logging.getLogger(_PACKAGE).removeHandler(handler)
        handler.close()


def log_as_worker(variables: Mapping[str, str] = os.environ) -> None:
    """Have this worker's package log to standard error, which Ray keeps with its session's logs.

    Does nothing in a process that no run has started.
    """
    if RUN_ID in variables:
        role, level = variables.get(ROLE, "worker"), variables.get(LEVEL, "info")
        _install(logging.StreamHandler(sys.stderr), variables[RUN_ID], role, level)
        logger.info("started")


def worker_variables(run_id: str, role: str, level: str) -> dict[str, str]:
    """What `log_as_worker` reads, for a worker's environment."""
    return {RUN_ID: run_id, ROLE: role, LEVEL: level}


def _install(handler: logging.Handler, run_id: str, role: str, level: str) -> None:
    handler.setFormatter(JsonLines(run_id, role))
    package = logging.getLogger(_PACKAGE)
    package.setLevel(level.upper())
    package.addHandler(handler)
    package.propagate = False  # the root's handlers would write it once more, and as it is
