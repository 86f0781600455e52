"""Splits of a source: a name that Hugging Face data sets have, and a slice of its rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.readers.rows import Rows

_SPLIT = re.compile(r"([\w.-]+)(?:\[(\d+%?)?:(\d+%?)?\])?")


@dataclass(frozen=True)
class Split:
    """`name`, and the bounds of the rows as they are written: a number or a percentage."""

    name: str
    start: str | None = None
    stop: str | None = None

    def rows(self, read: Callable[[], Rows]) -> Rows:
        """The rows of the slice, bad ones counted too; percentages are rounded down."""
        bounds = (self.start, self.stop)
        if bounds == (None, None):
            return read()
        is_share = any(bound is not None and bound.endswith("%") for bound in bounds)
        total = sum(1 for _ in read()) if is_share else 0
        return islice(read(), *(_place(bound, total) for bound in bounds))


def parse_split(text: str) -> Split:
    """`train`, `train[:1000]` or `train[90%:]`. Raises UserError."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise UserError(f"the split {text!r} is neither a name nor one with a slice: train[:90%]")
    return Split(match[1], match[2], match[3])


def _place(bound: str | None, total: int) -> int | None:
    if bound is None or not bound.endswith("%"):
        return None if bound is None else int(bound)
    return total * min(int(bound[:-1]), 100) // 100
