"""JSON: a file that is one array of objects, read element by element; or JSONL by another name."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.readers.jsonl import read_jsonl
from lightrft_ray.data.readers.rows import BadRow, Row, Rows
from lightrft_ray.data.readers.text_lines import LONGEST_LINE, first_byte, open_bytes

_CHUNK = 2**20  # bytes read at a time
_WHITE = " \t\r\n"


def read_json(path: Path) -> Rows:
    """The elements of the array, from 1. Raises UserError where the array breaks off."""
    if first_byte(path) != b"[":
        yield from read_jsonl(path)
        return
    with open_bytes(path) as file:
        for number, value in enumerate(_Elements(path, file), start=1):
            if isinstance(value, dict):
                yield Row(number, value)
            else:
                yield BadRow(number, "not a JSON object")


class _Elements(Iterator[object]):
    """The elements of an array whose text is held a piece at a time."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._read = 0  # elements
        self._chunk = _CHUNK
        self._skip("[")

    def __next__(self) -> object:
        if self._peek() == "]":
            self._at += 1
            self._check_end()
            raise StopIteration
        if self._read:
            self._skip(",")
        self._peek()
        value = self._next_value()
        self._read += 1
        return value

    def _next_value(self) -> object:
        """Reads on until the element is whole: at the end of what is read, a number may go on."""
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                may_go_on = not isinstance(error, RecursionError) and len(self._text) < LONGEST_LINE
                if not (may_go_on and self._fill()):
                    raise self._broken(str(error) or "nested too deeply") from error
                continue
            if end < len(self._text) or not self._fill():
                self._at = end
                return value

    def _peek(self) -> str:
        """The next character that is no white space."""
        character = self._next_character()
        if not character:
            raise self._broken("the array is not closed")
        return character

    def _check_end(self) -> None:
        if self._next_character():
            raise self._broken("there is more behind the end of the array")

    def _next_character(self) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _WHITE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _skip(self, character: str) -> None:
        if self._peek() != character:
            raise self._broken(f"{character!r} expected, {self._peek()!r} found")
        self._at += 1

    def _fill(self) -> bool:
        """Read on, ever more while one element is not whole; False at the end of the file."""
        if self._at:
            self._text, self._at, self._chunk = self._text[self._at :], 0, _CHUNK
        else:
            self._chunk *= 2
        try:
            content = self._file.read(self._chunk)
            self._text += self._decode.decode(content, final=not content)
        except UnicodeDecodeError as error:
            raise self._broken("not UTF-8: save the file as UTF-8") from error
        except (OSError, EOFError) as error:
            raise self._broken(f"the file ends early or is damaged ({error})") from error
        return bool(content)

    def _broken(self, reason: str) -> UserError:
        return UserError(
            f"{self._path}: the JSON array breaks off at row {self._read + 1}, and nothing behind "
            f"it can be read ({reason}): mend or download it again, or write one object a line"
        )
