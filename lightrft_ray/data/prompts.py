"""Prompts and how they are read from a JSONL file. Images stay references, never pixels."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.messages import ChatMessage, RowError, parse_messages

_ID_KEY = "id"
_NAMED_BAD_ROWS = 3


@dataclass(frozen=True)
class Prompt:
    """One prompt of a run; small enough to travel through the driver whatever its images' size."""

    id: str
    messages: tuple[ChatMessage, ...]
    images: tuple[str, ...]  # paths, in the order of the image parts
    image_root: Path  # where relative paths start, and which none may leave
    reference: str  # the right answer, "" where the data have none
    label: str  # the kind of task, "" where the data have none
    videos: tuple[str, ...] = ()  # as images


@dataclass(frozen=True)
class PromptKeys:
    """The names of a file's columns; the id is always `id`."""

    prompt: str = "prompt"
    images: str = "images"
    reference: str = "reference"
    label: str = "label"
    videos: str = "videos"


@dataclass(frozen=True)
class BadRow:
    """A row that was left out: its line number in the file, from 1, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class _Row:
    line: int
    columns: dict[str, object]


def read_prompts(
    path: Path,
    keys: PromptKeys = PromptKeys(),
    image_root: Path | None = None,
    max_bad_fraction: float = 0.05,
) -> tuple[list[Prompt], list[BadRow]]:
    """The prompts of a JSONL file in file order, and the rows that could not be used.

    The prompt column is needed in every row; a reference in every row, once any row has one. The
    images, reference and label columns may be absent under their default name; a renamed one must
    exist. Images are one path or a list of them, relative to `image_root` (default: the file's
    folder). A row without id gets a stable hash of its content.

    Raises UserError if the file is missing, empty or not UTF-8, if a column is missing everywhere,
    if two rows have one id, if more than `max_bad_fraction` of the rows are bad, or all.
    """
    rows, bad = _read_rows(path)
    columns = {column for row in rows for column in row.columns}
    if rows:
        _check_columns(path, keys, columns)
    needs_reference = keys.reference in columns
    root = path.parent if image_root is None else image_root
    prompts: list[Prompt] = []
    lines: dict[str, int] = {}
    for row in rows:
        try:
            prompt = _parse_row(row.columns, keys, root, needs_reference)
            _check_unique(path, row, prompt.id, lines)
        except RowError as error:
            bad.append(BadRow(row.line, str(error)))
        else:
            prompts.append(prompt)
            lines[prompt.id] = row.line
    bad.sort(key=lambda row: row.line)
    _check_bad_fraction(path, prompts, bad, max_bad_fraction)
    return prompts, bad


def _read_rows(path: Path) -> tuple[list[_Row], list[BadRow]]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; data are one JSON object a line (JSONL)")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; data are JSONL text") from error
    rows: list[_Row] = []
    bad: list[BadRow] = []
    # Not splitlines(): JSON strings may hold line separators other than the newline.
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            rows.append(_Row(line, _parse_line(content)))
        except RowError as error:
            bad.append(BadRow(line, str(error)))
    if not rows and not bad:
        raise UserError(f"{path}: the file is empty; data are one JSON object a line (JSONL)")
    return rows, bad


def _parse_line(content: str) -> dict[str, object]:
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(value, dict):
        raise RowError("not a JSON object")
    return value


def _check_columns(path: Path, keys: PromptKeys, columns: set[str]) -> None:
    for field in fields(keys):
        name = getattr(keys, field.name)
        needed = field.name == "prompt" or name != field.default
        if needed and name not in columns:
            found = ", ".join(sorted(columns))
            raise UserError(f"{path}: no row has a column {name!r}; the columns are {found}")


def _parse_row(
    columns: dict[str, object], keys: PromptKeys, root: Path, needs_reference: bool
) -> Prompt:
    if columns.get(keys.prompt) is None:
        raise RowError(f"no {keys.prompt!r}")
    if needs_reference and columns.get(keys.reference) is None:
        raise RowError(f"no {keys.reference!r}, which other rows have")
    images = _parse_media(columns.get(keys.images), keys.images)
    videos = _parse_media(columns.get(keys.videos), keys.videos)
    messages = parse_messages(columns[keys.prompt], len(images), len(videos))
    reference = _parse_scalar(columns.get(keys.reference), keys.reference)
    label = _parse_scalar(columns.get(keys.label), keys.label)
    identity = _parse_scalar(columns.get(_ID_KEY), _ID_KEY)
    identity = identity or _content_id(messages, images, videos, reference, label)
    return Prompt(identity, messages, images, root, reference, label, videos)


def _parse_media(value: object, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    images = [value] if isinstance(value, str) else value
    if not isinstance(images, list) or not all(isinstance(i, str) and i for i in images):
        raise RowError(f"{key!r} is neither a path nor a list of paths")
    return tuple(images)


def _parse_scalar(value: object, key: str) -> str:
    """Text or a number, as text; "" for none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError(f"{key!r} is neither a text nor a number")
    return json.dumps(value)


def _content_id(
    messages: Sequence[ChatMessage],
    images: Sequence[str],
    videos: Sequence[str],
    reference: str,
    label: str,
) -> str:
    parts: list[object] = [messages, images, reference, label]
    content = json.dumps([*parts, videos] if videos else parts, sort_keys=True)
    return "prompt-" + hashlib.sha256(content.encode()).hexdigest()[:16]


def _check_unique(path: Path, row: _Row, identity: str, lines: dict[str, int]) -> None:
    if identity not in lines:
        return
    if row.columns.get(_ID_KEY) is None:
        raise RowError(f"the same content as line {lines[identity]}")
    both = f"lines {lines[identity]} and {row.line}"
    raise UserError(f"{path}: {both} have the same id {identity!r}; ids must be unique")


def _check_bad_fraction(
    path: Path, prompts: list[Prompt], bad: list[BadRow], max_bad_fraction: float
) -> None:
    total = len(prompts) + len(bad)
    if prompts and len(bad) <= max_bad_fraction * total:
        return
    named = "; ".join(f"line {row.line}: {row.reason}" for row in bad[:_NAMED_BAD_ROWS])
    raise UserError(
        f"{path}: {len(bad)} of {total} rows are bad, more than the share {max_bad_fraction:g} that"
        f" data.max_bad_fraction allows ({named})"
    )
