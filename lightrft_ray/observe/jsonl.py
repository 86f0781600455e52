"""Files of one JSON object a line that a run appends to, step after step."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO


def open_steps(path: Path, after_step: int | None = None) -> TextIO:
    """Open a file to append to; what a killed run did not finish is cut off first.

    Where `after_step` is given, lines of later steps are removed: they will be written again.
    """
    cut_unfinished_line(path)
    if after_step is not None:
        cut_lines_after(path, after_step)
    return path.open("a", encoding="utf-8")


def append_line(file: TextIO, entry: Mapping[str, Any]) -> None:
    """Write `entry`, NaN and infinities as null, and see that it is on the disk's way."""
    file.write(json.dumps(finite(entry), allow_nan=False) + "\n")
    file.flush()


def finite(value: Any) -> Any:
    """`value` with null in the place of numbers that JSON cannot spell."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def parse_step(line: str) -> dict[str, Any] | None:
    """The object of a line; None where it is none or has no step."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) and "step" in entry else None


def cut_unfinished_line(path: Path) -> None:
    """Drop the end of a line that a killed run did not finish, or it would spoil the next one."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def cut_lines_after(path: Path, step: int) -> None:
    """Drop the lines of later steps, whole or not at all."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    entries = [(line, parse_step(line)) for line in lines]
    kept = [line for line, entry in entries if entry is not None and entry["step"] <= step]
    write_whole(path, "".join(kept))


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: beside its place first, then renamed."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
