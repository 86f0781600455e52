"""Media that lie inside a larger file: `stored://OFFSET+SIZE@PATH` refers to their bytes.

Rows of data cannot spell such a reference (addresses are refused), so that it comes from the
readers alone.
"""

import hashlib
import re
import tempfile
from pathlib import Path

from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.data.readers.rows import ByteRange

_STORED = re.compile(r"stored://(\d+)\+(\d+)@(.*)", re.DOTALL)


def stored_reference(offset: int, size: int, path: str) -> str:
    """The reference to `size` bytes at an offset of a file."""
    return f"stored://{offset}+{size}@{path}"


def is_stored(reference: str) -> bool:
    """Whether it refers to a part of a file."""
    return reference.startswith("stored://")


def read_stored(reference: str) -> bytes:
    """The bytes. Raises DataFault where the file is gone or shorter than it was."""
    match = _STORED.fullmatch(reference)
    if match is None:
        raise DataFault(f"image {reference[:200]}: is no reference to a part of a file")
    offset, size, path = int(match[1]), int(match[2]), match[3]
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            content = file.read(size)
    except OSError as error:
        raise DataFault(f"image in {path}: cannot be read ({error.strerror})") from error
    if len(content) != size:
        raise DataFault(f"image in {path}: the file is shorter than when the data were read")
    return content


class MediaStore:
    """One file for all bytes of media that rows hold themselves, equal ones once.

    Its name is a hash of what is in it, so that runs on the same data share it. References are
    complete with its path, which is known at the end: `stored://OFFSET+SIZE@` plus `path`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[bytes, tuple[int, int]] = {}
        self._size = 0
        self._digest = hashlib.sha256()
        self._file: tempfile._TemporaryFileWrapper[bytes] | None = None

    def add(self, content: bytes) -> tuple[str, str]:
        """The reference without a path, and the digest, of some bytes."""
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self._places[digest] = (self._size, len(content))
            self._write(content)
            self._digest.update(digest)
        return stored_reference(*self._places[digest], ""), digest.hex()

    def close(self) -> str:
        """Put the file in its place; its path, "" where there were no bytes."""
        if self._file is None:
            return ""
        target = self._folder / f"media-{self._digest.hexdigest()[:16]}"
        self._file.close()
        Path(self._file.name).replace(target)  # over an equal one, if there is one
        self._places.clear()
        return str(target)

    def discard(self) -> None:
        """Remove what was written, after an error."""
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)

    def _write(self, content: bytes) -> None:
        try:
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed by close
                    dir=self._folder, prefix=".media-", delete=False
                )
            self._file.write(content)
        except OSError as error:
            raise UserError(
                f"{self._folder}: images that the data hold themselves cannot be written there "
                f"({error.strerror}): make room, or set data.cache_dir to another folder"
            ) from error
        self._size += len(content)


def range_reference(value: ByteRange) -> str:
    """The complete reference to a value where it lies."""
    return stored_reference(value.offset, value.size, str(value.path))
