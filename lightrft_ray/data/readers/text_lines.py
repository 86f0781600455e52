"""Bytes and lines of files that may be compressed."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from lightrft_ray.config.errors import UserError

LONGEST_LINE = 2**28
"""Bytes; a longer one is no row, but a file without line ends."""


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A file opened for reading, decompressed if its name ends in .gz."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with file:
        # gzip's files have the methods of IO[bytes], but not its type
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file


def read_lines(path: Path) -> Iterator[bytes]:
    """Lines without their newline. Raises UserError for a compressed file that is damaged."""
    count = 0
    with open_bytes(path) as file:
        try:
            while line := file.readline(LONGEST_LINE):
                count += 1
                yield line.removesuffix(b"\n")
        except EOFError as error:
            raise UserError(
                f"{path}: the compressed file ends early, after line {count}: copy or download it "
                "again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{path}: the compressed file is damaged after line {count} ({error}): copy or "
                "download it again"
            ) from error
        except OSError as error:
            raise UserError(f"{path}: cannot be read after line {count} ({error})") from error


def first_byte(path: Path) -> bytes:
    """The first byte that is neither white space nor a mark of the encoding; b"" for none."""
    for line in read_lines(path):
        content = line.removeprefix(b"\xef\xbb\xbf").strip()
        if content:
            return content[:1]
    return b""
