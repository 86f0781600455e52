"""What an engine's processes keep outside themselves, and its removal, also after their death.

vLLM leaves the sockets between its processes in the temporary folder whenever an engine ends, and
their shared memory and semaphores where one of them is killed. All are noted in a folder that is
named after the process that owns the engine, so that whoever comes after a dead one can clear up.
"""

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

_SHARED_MEMORY = Path("/dev/shm")
_MAPPED = re.compile(rf"{_SHARED_MEMORY}/(psm_\w+)")  # the names that Python makes up
_SEMAPHORES = "sem.*-{pid}-*"  # those of loky, which joblib brings
_PREFIX = "lightrft_engine_"
_NOTES = "shared_memory"
_LOOK_EVERY = 0.1  # s
_CLOCK_STEP = 10  # s: a process's birth is told by a clock that may be set


class EngineScratch:
    """The folder of this process's engine."""

    def __init__(self) -> None:
        """Make it, and have the engine's sockets put there; that of a dead process is removed."""
        remove_abandoned()
        owner = psutil.Process()
        self._folder = _root() / f"{_PREFIX}{owner.pid}_{_birth(owner)}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        os.environ["VLLM_RPC_BASE_PATH"] = str(self._folder)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note the shared memory of all processes that this one has or starts, as it appears."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._note_until, args=[ended], daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def remove(self) -> None:
        """Remove all of it; the engine must have ended."""
        _remove(self._folder)

    def _note_until(self, ended: threading.Event) -> None:
        names: set[str] = set()
        is_last = False
        while not is_last:
            is_last = ended.wait(_LOOK_EVERY)
            names |= _shared_by(psutil.Process().children(recursive=True))
            (self._folder / _NOTES).write_text("\n".join(sorted(names)))


def remove_abandoned() -> None:
    """Remove what engines of this user left on this machine whose owners are dead."""
    for folder in _root().glob(f"{_PREFIX}*"):
        try:
            is_own = folder.stat().st_uid == os.getuid()
        except FileNotFoundError:  # another has just removed it
            continue
        if is_own and not _is_alive(folder.name.removeprefix(_PREFIX)):
            logger.debug("removing what a dead engine left", extra={"folder": str(folder)})
            _remove(folder)


def _root() -> Path:
    return Path(tempfile.gettempdir())


def _birth(process: psutil.Process) -> int:
    return int(process.create_time())


def _is_alive(owner: str) -> bool:
    """Whether the process is there, and not a later one of the same number."""
    number, _, birth = owner.partition("_")
    try:
        process = psutil.Process(int(number))
        is_zombie = process.status() == psutil.STATUS_ZOMBIE
        return not is_zombie and abs(_birth(process) - int(birth)) <= _CLOCK_STEP
    except psutil.NoSuchProcess:
        return False


def _shared_by(processes: Sequence[psutil.Process]) -> set[str]:
    """Names of the shared memory that processes have open, and of their semaphores."""
    names: set[str] = set()
    for process in processes:
        with suppress(OSError):  # it has just ended
            names.update(_MAPPED.findall(Path(f"/proc/{process.pid}/maps").read_text()))
        semaphores = _SHARED_MEMORY.glob(_SEMAPHORES.format(pid=process.pid))
        names.update(path.name for path in semaphores)
    return names


def _remove(folder: Path) -> None:
    notes = folder / _NOTES
    names = notes.read_text().split() if notes.exists() else []
    for name in names:
        (_SHARED_MEMORY / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
