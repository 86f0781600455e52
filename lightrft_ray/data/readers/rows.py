"""What readers yield, whatever the format."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """A row's columns by name; its number counts lines or rows of its file, from 1."""

    number: int
    columns: Mapping[str, object]
    file: str = ""  # of a source of several files, the one it is in


@dataclass(frozen=True)
class BadRow:
    """A row that was left out: its line or row number in the file, from 1, and why."""

    line: int
    reason: str
    file: str = ""


@dataclass(frozen=True)
class ByteRange:
    """A value that lies in a file as it is: a member of an archive, say."""

    path: Path
    offset: int
    size: int


Rows = Iterator[Row | BadRow]
Reader = Callable[[Path], Rows]
"""Reads a file row by row. Raises UserError, before or between rows, for a file that is damaged."""
