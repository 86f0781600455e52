"""A child process that answers messages, and is killed when it does not answer in time.

Not multiprocessing, whose children first run the main module of their parent again (for a worker
under Ray, all of Ray), and may outlive it.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

_PR_SET_PDEATHSIG = 1


class ChildProcessFault(Exception):  # noqa: N818 - what happened, which the caller may recover from
    """The child died or did not answer in time; it is gone. The message says which."""


class ChildProcess:
    """Runs `python -m MODULE`, which must begin by calling `connect_to_parent`. For one thread."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed since; it may have died."""
        return self._process is not None

    def start(self) -> None:
        """Start it; the module is imported while this one goes on."""
        own, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(other.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(own.detach())

    def exchange(self, message: object, timeout: float) -> object:
        """Send a message and give its answer.

        Raises ChildProcessFault after `timeout` seconds without one, or where the child died; it is
        gone then. Raises RuntimeError if it was not started.
        """
        if self._connection is None or self._process is None:
            raise RuntimeError("the process was not started")
        process = self._process
        try:
            self._connection.send(message)
            if self._connection.poll(timeout):
                return self._connection.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise ChildProcessFault(f"died (exit status {process.returncode})") from None
        self.kill()
        raise ChildProcessFault(f"did not answer within {timeout:.3g} s and was killed")

    def kill(self) -> None:
        """End it with SIGKILL, whatever it does."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None


def connect_to_parent(descriptor: str, parent: str) -> Connection:
    """The child's end, from its command line.

    The child dies with the thread that started it, even if its work holds the interpreter then.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it ended before
            sys.exit()
    return Connection(int(descriptor))
