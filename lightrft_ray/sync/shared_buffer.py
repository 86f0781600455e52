"""A block of memory that a generator shares with its engine's processes.

The engine's processes are no Ray workers and cannot read the object store. The block is an
anonymous memory file (memfd): another process of the same user maps it through
``/proc/PID/fd/FD``, and the kernel frees it with the generator, so that even a killed one leaves
nothing behind in /dev/shm. It only ever grows: memory that was written once is written again
several times as fast.
"""

import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np


class SharedBuffer:
    """A memory file that its owner writes to and other processes read."""

    def __init__(self, name: str) -> None:
        self._file = os.fdopen(os.memfd_create(name), "w+b", buffering=0)
        self._block = np.empty(0, dtype=np.uint8)

    @property
    def path(self) -> str:
        """Where another process of the same user finds it."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def reserve(self, nbytes: int) -> np.ndarray:
        """The first `nbytes` bytes (uint8), to be written to; what lay there may be there still."""
        if nbytes > self._block.nbytes:
            os.ftruncate(self._file.fileno(), nbytes)
            self._block = np.frombuffer(mmap.mmap(self._file.fileno(), nbytes), dtype=np.uint8)
        return self._block[:nbytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


class SharedView:
    """Another process's buffer, mapped once and again where it has grown."""

    def __init__(self) -> None:
        self._path = ""
        self._block = np.empty(0, dtype=np.uint8)

    def read(self, path: str, nbytes: int) -> np.ndarray:
        """The first `nbytes` bytes (uint8) as they are; the owner's next write changes them.

        The array must not be written to.
        """
        if path != self._path or nbytes > self._block.nbytes:
            with Path(path).open("r+b", buffering=0) as file:
                mapped = mmap.mmap(file.fileno(), nbytes)
            # Writable, though nobody writes: PyTorch takes no other arrays without a warning.
            self._block = np.frombuffer(mapped, dtype=np.uint8)
            self._path = path
        return self._block[:nbytes]
