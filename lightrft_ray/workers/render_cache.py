"""Rendered prompts that may come again: in the next epoch, or the next evaluation."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass
class RenderCache(Generic[Value]):
    """The values used last, as many as fit into `limit` bytes. For any number of threads."""

    limit: int
    nbytes: int = 0
    _entries: OrderedDict[bytes, tuple[Value, int]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, key: bytes) -> Value | None:
        """The value under a key, None where there is none (any more)."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: bytes, value: Value, nbytes: int) -> None:
        """Keep a value of `nbytes`, and drop what was not used for longest; not what is too large.

        A key stands for one value for ever, so that one that is there stays.
        """
        with self._lock:
            if nbytes > self.limit or key in self._entries:
                return
            self._entries[key] = (value, nbytes)
            self.nbytes += nbytes
            while self.nbytes > self.limit:
                _, (_, freed) = self._entries.popitem(last=False)
                self.nbytes -= freed

    def __len__(self) -> int:
        return len(self._entries)
