"""A block of memory that a generator shares with its engine's processes.

The engine's processes are no Ray workers and cannot read the object store. The block is an
anonymous memory file (memfd): another process of the same user reads it through
``/proc/PID/fd/FD``, and the kernel frees it with the generator, so that even a killed one leaves
nothing behind in /dev/shm.
"""

import os
from collections.abc import Sequence
from typing import Self

import numpy as np


class SharedBuffer:
    """A memory file with as many blocks as were last written to it."""

    def __init__(self, name: str) -> None:
        self._file = os.fdopen(os.memfd_create(name), "w+b", buffering=0)

    @property
    def path(self) -> str:
        """Where another process of the same user can read the blocks."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def write(self, blocks: Sequence[np.ndarray]) -> list[int]:
        """Replace the content by uint8 arrays, one behind the other; returns their offsets."""
        self._file.seek(0)
        self._file.truncate()
        offsets = []
        for block in blocks:
            offsets.append(self._file.tell())
            block.tofile(self._file)
        return offsets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def read_block(path: str, offset: int, nbytes: int) -> np.ndarray:
    """A copy of the bytes [offset, offset + nbytes) of another process's buffer, as uint8."""
    return np.fromfile(path, dtype=np.uint8, count=nbytes, offset=offset)
