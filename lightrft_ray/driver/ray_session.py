"""A connection to Ray that ends with the run."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import ray

from lightrft_ray.config import UserError
from lightrft_ray.driver.interruption import Interruption
from lightrft_ray.workers.engine_scratch import remove_abandoned

_ADDRESS = "RAY_ADDRESS"
_CONNECT_TIMEOUT = 10  # s
_WAIT_FOR_CHILDREN = 10  # s: what is still there then is killed


@dataclass(frozen=True)
class RaySession:
    """A connection to Ray: whether it is a local one, and what signals do while it lasts."""

    is_local: bool
    interruption: Interruption


@contextmanager
def ray_session() -> Iterator[RaySession]:
    """Use the cluster that RAY_ADDRESS names, or start a local Ray and stop it at the end.

    On leaving, however the block ends, no process of a local Ray is left. Inside, Ctrl-C and
    SIGTERM do what `Interruption` says. Raises UserError where no cluster answers at RAY_ADDRESS.
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
    session = RaySession(is_local=not address, interruption=Interruption())
    with session.interruption.handled():
        try:
            yield session
        finally:
            with session.interruption.shielded():
                children = psutil.Process().children(recursive=True) if not address else []
                ray.shutdown()
                _end(children)
                remove_abandoned()


def _connect(address: str) -> None:
    try:
        _check_somebody_listens(address)
        ray.init(log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        if "Version mismatch" in str(error):
            raise UserError(_other_versions(address, str(error))) from error
        reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"no Ray cluster can be used at {_ADDRESS}={address} ({reason}); "
            f"start one with `ray start --head`, or unset {_ADDRESS} for a local one"
        ) from error


def _other_versions(address: str, complaint: str) -> str:
    """One line of Ray's several on a cluster of another Ray or Python."""
    pairs = zip(
        re.findall(r"Ray: (\S+)", complaint), re.findall(r"Python: (\S+)", complaint), strict=True
    )
    theirs, ours = (f"Ray {ray_version} and Python {python}" for ray_version, python in pairs)
    return (
        f"the cluster at {_ADDRESS}={address} runs {theirs}, and this machine {ours}: install the "
        "same on all of them"
    )


def _check_somebody_listens(address: str) -> None:
    """Raise OSError at once where nobody does: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():  # other forms, such as "auto", name no port
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT).close()


def _end(processes: list[psutil.Process]) -> None:
    """Wait for processes to end, and kill those that do not."""
    _, alive = psutil.wait_procs(processes, timeout=_WAIT_FOR_CHILDREN)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=_WAIT_FOR_CHILDREN)
