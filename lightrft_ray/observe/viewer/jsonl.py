"""Reading JSON lines that may still be written, cut short or damaged."""

import json
import math
from pathlib import Path


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file but for a last one without its end, which somebody may be writing.

    None where there is no file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return [line for line in content[: content.rfind(b"\n") + 1].split(b"\n") if line.strip()]


def parse_object(line: bytes) -> dict[str, object] | None:
    """The JSON object of a line, None where it is none; numbers that are not finite are None."""
    try:
        value = json.loads(
            line, parse_int=_finite, parse_float=_finite, parse_constant=lambda _: None
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_object(path: Path) -> dict[str, object]:
    """The JSON object of a file; an empty one where it is missing or damaged."""
    try:
        return parse_object(path.read_bytes()) or {}
    except FileNotFoundError:
        return {}


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
