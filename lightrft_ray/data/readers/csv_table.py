"""CSV and TSV with a line of column names; lists and chat messages are JSON in their cell."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.readers.rows import BadRow, Row, Rows
from lightrft_ray.data.readers.text_lines import read_lines

_LONGEST_CELL = 2**24  # characters; a quote that is never closed ends there


def read_csv(path: Path) -> Rows:
    """The rows below the line of names, from 1; an empty cell is a column that the row lacks."""
    csv.field_size_limit(_LONGEST_CELL)
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    reader = csv.reader(_text_lines(path), delimiter=delimiter, strict=True)
    names = next(_cells(reader), None)
    if names is None:
        return
    if isinstance(names, str) or len(set(names)) != len(names) or not all(names):
        raise UserError(f"{path}: the first line must name each column, once: {_shown(names)}")
    for number, cells in enumerate(_cells(reader), start=1):
        yield _row(number, names, cells)


def _cells(reader: Iterator[list[str]]) -> Iterator[list[str] | str]:
    """The cells of each row, or why they cannot be read."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"not CSV ({error})"
            continue
        if cells:
            yield cells


def _row(number: int, names: list[str], cells: list[str] | str) -> Row | BadRow:
    if isinstance(cells, str):
        return BadRow(number, cells)
    if len(cells) != len(names):
        return BadRow(number, f"{len(cells)} cells for {len(names)} columns")
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return BadRow(number, "not UTF-8: save the file as UTF-8")
    return Row(number, {name: _value(cell) for name, cell in zip(names, cells, strict=True)})


def _value(cell: str) -> object:
    if not cell:
        return None
    if not cell.startswith(("[", "{")):
        return cell
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return cell  # a text that begins like JSON
    is_structure = isinstance(value, dict) or (
        bool(value) and all(isinstance(item, str | dict) for item in value)
    )
    return value if is_structure else cell


def _text_lines(path: Path) -> Iterator[str]:
    """Lines with their newline; bytes that are not UTF-8 become surrogates, seen in `_row`."""
    for number, line in enumerate(read_lines(path)):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
        yield content.decode("utf-8", errors="surrogateescape") + "\n"


def _shown(names: list[str] | str) -> str:
    return names if isinstance(names, str) else ", ".join(names)[:200]
