"""What Ctrl-C and SIGTERM do to a run: the first ends it in order, the second at once."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import psutil

logger = logging.getLogger(__name__)

EXIT_STATUS = 130  # the shell's status for a program ended by Ctrl-C
_KILL_TIMEOUT = 5  # s
_SHOW_CURSOR = "\x1b[?25h"


class Interruption:
    """The first signal raises KeyboardInterrupt, where a block is shielded at its end.

    The second kills this process and all that it has started.
    """

    def __init__(self) -> None:
        self.report: Callable[[str], None] = logger.warning
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
        self.report("interrupted: the run ends after this step (again: at once)")


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
    sys.stderr.write("interrupted twice: stopped at once\n")
    sys.stderr.flush()
    os._exit(EXIT_STATUS)
