"""WebDataset: tar files whose neighbouring members of one name up to its dot are one row.

Members of an uncompressed tar are not copied: a row refers to their bytes where they lie.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.messages import RowError
from lightrft_ray.data.readers.jsonl import parse_object
from lightrft_ray.data.readers.rows import BadRow, ByteRange, Row, Rows

KEY = "__key__"
_IMAGES = ("png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff")
_VIDEOS = ("mp4", "webm", "mkv", "avi", "mov")
_TEXTS = ("txt", "text", "cls", "caption")
_LONGEST_TEXT = 2**26  # bytes of a text or JSON member
_Value = ByteRange | bytes


@dataclass
class _Sample:
    """The members of one row, in the order of the tar."""

    key: str
    members: dict[str, tuple[str, _Value]] = field(default_factory=dict)  # file name: ending, value


def read_webdataset(path: Path) -> Rows:
    """The rows from 1. Columns are those of the row's .json, and one by each member's ending.

    `images` and `videos` are the row's media in the order of the tar, unless the .json has its own:
    names in those stand for members. `__key__` is the name up to its first dot.
    Raises UserError for a damaged tar.
    """
    for number, sample in enumerate(_samples(path), start=1):
        try:
            yield Row(number, _columns(sample))
        except RowError as error:
            yield BadRow(number, f"{sample.key}: {error}")


def _samples(path: Path) -> Iterator[_Sample]:
    sample: _Sample | None = None
    for name, value in _members(path):
        folder, _, file = name.rpartition("/")
        stem, _, ending = file.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        if sample is None or sample.key != key:
            if sample is not None:
                yield sample
            sample = _Sample(key)
        sample.members[file] = (ending.lower(), value)
    if sample is not None:
        yield sample


def _members(path: Path) -> Iterator[tuple[str, _Value]]:
    is_plain = path.suffix == ".tar"
    last = "the beginning"
    try:
        with tarfile.open(path, mode="r:" if is_plain else "r|*") as tar:
            for member in tar:
                if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                    continue
                yield member.name, _value(path, tar, member, by_reference=is_plain)
                last = member.name
                tar.members = []  # type: ignore[attr-defined]  # tarfile would keep all of them
            if is_plain and not _is_closed(path):
                raise tarfile.ReadError("it has no mark of its end")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(
            f"{path}: the tar is damaged after {last} ({error}): copy or download it again"
        ) from error


def _is_closed(path: Path) -> bool:
    """Whether it ends in zeros: tarfile takes one that is cut between two members for whole."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - tarfile.BLOCKSIZE))
        return not file.read().strip(b"\0")


def _value(
    path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, *, by_reference: bool
) -> _Value:
    ending = member.name.rpartition(".")[2].lower()
    is_text = ending == "json" or ending in _TEXTS
    if by_reference and not (is_text and member.size <= _LONGEST_TEXT):
        if member.issparse():
            raise tarfile.TarError(f"{member.name} is a sparse file")
        return ByteRange(path.resolve(), member.offset_data, member.size)
    file = tar.extractfile(member)
    content = b"" if file is None else file.read()
    if len(content) != member.size:
        raise tarfile.ReadError(f"{member.name} ends early")
    return content


def _columns(sample: _Sample) -> dict[str, object]:
    columns: dict[str, object] = {KEY: sample.key}
    by_name = {name: value for name, (_, value) in sample.members.items()}
    for ending, value in sample.members.values():
        last = ending.rpartition(".")[2]
        if last == "json" and isinstance(value, bytes):
            columns |= parse_object(value)
        elif last in _TEXTS and isinstance(value, bytes):
            columns.setdefault(ending, _text(ending, value))
        else:
            columns.setdefault(ending, value)
    for name, endings in (("images", _IMAGES), ("videos", _VIDEOS)):
        own = [value for ending, value in sample.members.values() if _is(ending, endings)]
        if columns.get(name) is None and own:
            columns[name] = own
        elif columns.get(name) is not None:
            columns[name] = _members_named(columns[name], by_name)
    return columns


def _is(ending: str, endings: tuple[str, ...]) -> bool:
    return ending.rpartition(".")[2] in endings


def _text(ending: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowError(f"its .{ending} is not UTF-8 at byte {error.start}") from error


def _members_named(value: object, by_name: dict[str, _Value]) -> object:
    if isinstance(value, str):
        return by_name.get(value, value)
    if isinstance(value, list):
        return [by_name.get(item, item) if isinstance(item, str) else item for item in value]
    return value
