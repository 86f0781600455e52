"""What Ctrl-C and SIGTERM do to a run: the first ends it in order, the second at once."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import psutil

EXIT_STATUS = 130  # the shell's status for a program ended by Ctrl-C
_STANDARD_ERROR = 2
_KILL_TIMEOUT = 5  # s
_SHOW_CURSOR = "\x1b[?25h"


class Interruption:
    """The first signal raises KeyboardInterrupt, where a block is shielded at its end.

    The second kills this process and all that it has started.
    """

    def __init__(self) -> None:
        self.requested = False
        self._shielded = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals inside the block.

        Ray installs a handler for SIGTERM when it connects, which aborts the process: come after.
        """
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Let a block come to its end before the first signal has its effect."""
        was_requested = self.requested
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self.requested and not was_requested:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.requested:
            end_at_once()
        self.requested = True
        if not self._shielded:
            raise KeyboardInterrupt
        _say("interrupted: the run ends after this step (again: at once)")


def end_at_once() -> None:
    """Kill all descendants of this process, then itself."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children, timeout=_KILL_TIMEOUT)
    if sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)
    sys.stdout.flush()
    _say("interrupted twice: stopped at once")
    os._exit(EXIT_STATUS)


def _say(text: str) -> None:
    """Write to standard error, past Python's buffers: a signal may come while one is written to."""
    os.write(_STANDARD_ERROR, f"{text}\n".encode())
