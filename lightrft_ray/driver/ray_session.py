"""A connection to Ray that ends with the run."""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import psutil
import ray

from lightrft_ray.config import UserError

_ADDRESS = "RAY_ADDRESS"
_CONNECT_TIMEOUT = 10  # s
_WAIT_FOR_CHILDREN = 10  # s: what is still there then is killed


@contextmanager
def ray_session() -> Iterator[bool]:
    """Use the cluster that RAY_ADDRESS names, or start a local Ray and stop it at the end.

    Yields whether the Ray is local. On leaving, however the block ends, no process of a local
    Ray is left. Inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does. Raises UserError where no
    cluster answers at RAY_ADDRESS.
    """
    address = os.environ.get(_ADDRESS)
    if address:
        _connect(address)
    else:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,  # its greetings are no news to whoever runs a laptop
        )
    try:
        with _sigterm_interrupts():
            yield address is None
    finally:
        children = psutil.Process().children(recursive=True) if not address else []
        ray.shutdown()
        _end(children)


def _connect(address: str) -> None:
    try:
        _check_somebody_listens(address)
        ray.init(log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"no Ray cluster can be used at {_ADDRESS}={address} ({reason}); "
            f"start one with `ray start --head`, or unset {_ADDRESS} for a local one"
        ) from error


def _check_somebody_listens(address: str) -> None:
    """Raise OSError at once where nobody does: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():  # other forms, such as "auto", name no port
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT).close()


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM, as of `ray job stop`, run through every `finally` on the way out.

    Ray installs a handler of its own when it connects, which aborts the process: come after it.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _end(processes: list[psutil.Process]) -> None:
    """Wait for processes to end, and kill those that do not."""
    _, alive = psutil.wait_procs(processes, timeout=_WAIT_FOR_CHILDREN)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=_WAIT_FOR_CHILDREN)
