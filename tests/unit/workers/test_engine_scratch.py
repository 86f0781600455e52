"""What a dead engine left is removed; what a living one uses is not."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

from lightrft_ray.workers.engine_scratch import EngineScratch, remove_abandoned

# Owns an engine: a child with shared memory and a semaphore, whose names it says, and a socket.
_OWNER = """
import os, subprocess, sys, time
from lightrft_ray.workers.engine_scratch import EngineScratch

_CHILD = '''
import _multiprocessing, os, time
from multiprocessing import resource_tracker, shared_memory
lock = _multiprocessing.SemLock(0, 1, 1, "/loky-%d-abcd" % os.getpid(), False)
memory = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(memory._name, "shared_memory")  # it is killed, too
print(memory.name, "sem." + lock.name.lstrip("/"), flush=True)
time.sleep(60)
'''
scratch = EngineScratch()
with scratch.noting():
    child = subprocess.Popen([sys.executable, "-c", _CHILD], stdout=subprocess.PIPE, text=True)
    names = child.stdout.readline().strip()
open(os.path.join(os.environ["VLLM_RPC_BASE_PATH"], "socket"), "w").close()
if sys.argv[1] == "stop":
    child.kill()
    scratch.remove()
print(child.pid, names, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own, for its processes as well."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "as before")
    yield tmp_path


def _start_owner(how: str) -> tuple[subprocess.Popen[str], psutil.Process, list[Path]]:
    command = [sys.executable, "-c", _OWNER, how]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child, *names = owner.stdout.readline().split()
    return owner, psutil.Process(int(child)), [Path("/dev/shm") / name for name in names]


def test_what_a_killed_owner_left_is_removed_and_not_before(temporary: Path) -> None:
    owner, child, shared = _start_owner("go on")
    remove_abandoned()
    (folder,) = temporary.glob("lightrft_engine_*")
    assert (folder / "socket").exists()
    assert all(path.exists() for path in shared)
    owner.kill()
    owner.wait()
    child.kill()
    remove_abandoned()
    assert not any(path.exists() for path in shared)
    assert not folder.exists()


def test_an_owner_that_ends_its_engine_leaves_nothing(temporary: Path) -> None:
    owner, _, shared = _start_owner("stop")
    assert not any(path.exists() for path in shared)
    assert not [*temporary.glob("lightrft_engine_*")]
    owner.kill()
    owner.wait()


def test_a_later_process_of_the_same_number_is_not_the_owner(temporary: Path) -> None:
    born = int(psutil.Process().create_time())
    old = temporary / f"lightrft_engine_{os.getpid()}_{born - 3600}"
    old.mkdir()
    scratch = EngineScratch()  # clears up as it begins
    (own,) = temporary.glob("lightrft_engine_*")
    assert own.name == f"lightrft_engine_{os.getpid()}_{born}"
    scratch.remove()
    assert not own.exists()


def test_shared_memory_of_others_stays(temporary: Path) -> None:
    memory = SharedMemory(create=True, size=64)
    scratch = EngineScratch()
    with scratch.noting():
        pass
    scratch.remove()
    assert Path("/dev/shm", memory.name).exists()
    memory.close()
    memory.unlink()
