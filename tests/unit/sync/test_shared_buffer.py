"""The shared buffer: read by another process, rewritten, and gone with its owner."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lightrft_ray.sync.shared_buffer import SharedBuffer, SharedView

_READER = """
import sys
from lightrft_ray.sync.shared_buffer import SharedView
sys.stdout.buffer.write(SharedView().read(sys.argv[1], int(sys.argv[2])).tobytes())
"""
_OWNER = """
import sys
from lightrft_ray.sync.shared_buffer import SharedBuffer
buffer = SharedBuffer(sys.argv[1])
buffer.reserve(1000)[:] = 1
print(buffer.path, flush=True)
sys.stdin.read()
"""


_NAME = f"lightrft_test_{os.getpid()}"


def _left_in_shared_memory() -> list[Path]:
    return list(Path("/dev/shm").glob(f"*{_NAME}*"))


def _bytes(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def test_another_process_reads_what_was_written() -> None:
    with SharedBuffer(_NAME) as buffer:
        buffer.reserve(70_000)[:] = _bytes(70_000)
        arguments = [buffer.path, "70000"]
        done = subprocess.run(
            [sys.executable, "-c", _READER, *arguments], check=True, capture_output=True
        )
    assert done.stdout == _bytes(70_000).tobytes()


@pytest.mark.parametrize("size", [10, 4000, 5003, 200_000])
def test_one_view_sees_every_later_write_whatever_its_size(size: int) -> None:
    view = SharedView()
    with SharedBuffer(_NAME) as buffer:
        for seed, length in enumerate((4000, size, 300)):
            buffer.reserve(length)[:] = _bytes(length, seed)
            assert np.array_equal(view.read(buffer.path, length), _bytes(length, seed))


def test_memory_is_kept_for_the_next_write() -> None:
    with SharedBuffer(_NAME) as buffer:
        first = buffer.reserve(8000)
        assert np.shares_memory(first, buffer.reserve(4000))
        view = SharedView()
        block = view.read(buffer.path, 8000)
        first[:] = 3
        assert np.shares_memory(block, view.read(buffer.path, 8000))
        assert (block == 3).all()


def test_a_view_can_be_given_another_buffer() -> None:
    view = SharedView()
    with SharedBuffer(_NAME) as one, SharedBuffer(_NAME) as other:
        one.reserve(100)[:] = 1
        other.reserve(50)[:] = 2
        assert view.read(one.path, 100).tolist() == [1] * 100
        assert view.read(other.path, 50).tolist() == [2] * 50


def test_nothing_is_left_behind() -> None:
    with SharedBuffer(_NAME) as buffer:
        buffer.reserve(1000)
        path = buffer.path
        assert not _left_in_shared_memory()
    assert not Path(path).exists()


def test_nothing_is_left_behind_by_a_killed_process() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, _NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    path = owner.stdout.readline().strip()
    assert SharedView().read(path, 1000).sum() == 1000
    owner.kill()
    owner.communicate()
    assert not Path(path).exists()
    assert not _left_in_shared_memory()
