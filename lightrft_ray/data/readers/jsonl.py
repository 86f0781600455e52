"""JSONL: one JSON object a line, compressed or not."""

import json
from pathlib import Path

from lightrft_ray.data.messages import RowError
from lightrft_ray.data.readers.rows import BadRow, Row, Rows
from lightrft_ray.data.readers.text_lines import read_lines


def read_jsonl(path: Path) -> Rows:
    """The rows by line number; empty lines are none."""
    # Not text lines: JSON strings may hold line separators other than the newline.
    for number, line in enumerate(read_lines(path), start=1):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not content.strip():
            continue
        try:
            yield Row(number, parse_object(content))
        except RowError as error:
            yield BadRow(number, str(error))


def parse_object(content: bytes) -> dict[str, object]:
    """The JSON object of a row. Raises RowError."""
    try:
        value = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start}: save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise RowError("not JSON that can be read (nested too deeply)") from error
    except ValueError as error:  # an integer of thousands of digits
        raise RowError(f"not JSON that can be read ({str(error).partition(';')[0]})") from error
    if not isinstance(value, dict):
        raise RowError("not a JSON object")
    return value
