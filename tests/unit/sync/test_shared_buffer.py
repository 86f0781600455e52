"""The shared buffer: read by another process, rewritten, and gone with its owner."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lightrft_ray.sync.shared_buffer import SharedBuffer, read_block

_READER = """
import sys
from lightrft_ray.sync.shared_buffer import read_block
path, offset, nbytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.stdout.buffer.write(read_block(path, offset, nbytes).tobytes())
"""
_OWNER = """
import sys
import numpy as np
from lightrft_ray.sync.shared_buffer import SharedBuffer
buffer = SharedBuffer(sys.argv[1])
buffer.write([np.ones(1000, dtype=np.uint8)])
print(buffer.path, flush=True)
sys.stdin.read()
"""


_NAME = f"lightrft_test_{os.getpid()}"


def _left_in_shared_memory() -> list[Path]:
    return list(Path("/dev/shm").glob(f"*{_NAME}*"))


def _blocks(*sizes: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, size, dtype=np.uint8) for size in sizes]


def test_another_process_reads_each_block() -> None:
    blocks = _blocks(1000, 0, 70_000)
    with SharedBuffer(_NAME) as buffer:
        offsets = buffer.write(blocks)
        assert offsets == [0, 1000, 1000]
        arguments = [buffer.path, str(offsets[2]), str(blocks[2].nbytes)]
        done = subprocess.run(
            [sys.executable, "-c", _READER, *arguments], check=True, capture_output=True
        )
    assert done.stdout == blocks[2].tobytes()


@pytest.mark.parametrize("sizes", [(10,), (5000, 3), (200_000,)])
def test_rewriting_replaces_everything(sizes: tuple[int, ...]) -> None:
    with SharedBuffer(_NAME) as buffer:
        buffer.write(_blocks(4000, 50))
        path, blocks = buffer.path, _blocks(*sizes)
        offsets = buffer.write(blocks)
        assert buffer.path == path
        assert Path(path).stat().st_size == sum(sizes)
        for offset, block in zip(offsets, blocks, strict=True):
            assert np.array_equal(read_block(path, offset, block.nbytes), block)


def test_a_block_that_was_read_outlives_the_next_write() -> None:
    first, second = _blocks(100, 100)
    with SharedBuffer(_NAME) as buffer:
        buffer.write([first])
        read = read_block(buffer.path, 0, 100)
        buffer.write([second])
    assert np.array_equal(read, first)


def test_nothing_is_left_behind() -> None:
    with SharedBuffer(_NAME) as buffer:
        buffer.write(_blocks(1000))
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
    assert read_block(path, 0, 1000).sum() == 1000
    owner.kill()
    owner.communicate()
    assert not Path(path).exists()
    assert not _left_in_shared_memory()
