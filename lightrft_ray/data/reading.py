"""Reading a source of prompts: rows in, prompts and the reasons of bad rows out."""

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.embedded import DEFAULT_CACHE_DIR
from lightrft_ray.data.layouts import (
    DEFAULT_KEYS,
    DETECTED_FROM,
    Layout,
    PromptKeys,
    RowFields,
    chosen_layout,
    needed_columns,
    row_fields,
    value_at,
)
from lightrft_ray.data.media_references import MediaItem, MediaRoot
from lightrft_ray.data.messages import RowError, parse_messages
from lightrft_ray.data.prompt import Prompt, content_id
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.readers.rows import BadRow, Row
from lightrft_ray.data.sources import Source
from lightrft_ray.data.stored_media import MediaStore

NAMED_BAD_ROWS = 3
Scalar = str | int | float | bool


@dataclass(frozen=True)
class ReadRules:
    """How rows become prompts, and which are left out."""

    keys: PromptKeys = DEFAULT_KEYS
    layout: str = "auto"  # or one of LAYOUTS
    image_root: Path | None = None  # None: the source's folder
    allow_paths_outside: bool = False
    filter_columns: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    max_chars: int | None = None  # of a prompt's text
    limit: int | None = None  # prompts to read
    max_bad_fraction: float = 0.05
    cache_dir: Path | None = None  # where media go that rows hold themselves


@dataclass(frozen=True)
class ReadSource:
    """What a source gave. `word` is what its rows are called, line or row."""

    name: str
    word: str
    layout: str
    prompts: PromptSet
    bad: list[BadRow]
    filtered: int
    numbers: Sequence[int]  # of the prompts' rows

    def where(self, row: BadRow) -> str:
        """A bad row's place and reason."""
        return f"{_place(self.word, row.file, row.line)}: {row.reason}"

    def describe(self) -> str:
        """One line on the source."""
        counts = f"{len(self.prompts)} prompts, layout {self.layout}"
        counts += f", {self.filtered} filtered" if self.filtered else ""
        if not self.bad:
            return f"{self.name}: {counts}"
        named = "; ".join(self.where(row) for row in self.bad[:NAMED_BAD_ROWS])
        return f"{self.name}: {counts}, {len(self.bad)} bad rows left out ({named})"


def read_source(source: Source, rules: ReadRules, *, take_all: bool = False) -> ReadSource:
    """The prompts of a source in its order, and the rows that could not be used.

    The prompt column is needed in every row; a reference in every row, once any row has one. The
    images, videos, reference and label columns may be absent under their default name; a renamed
    one must exist. Media are one or a list of paths, relative to the image root, or their bytes. A
    row without id gets a stable hash of its content.

    Raises UserError if the source is missing, empty or damaged, if a column is missing everywhere,
    if two rows have one id, if more than `max_bad_fraction` of the rows are bad, or all, or if
    none passes the filters. With `take_all` no share of bad rows is too large, nor no prompt.
    """
    store = MediaStore((rules.cache_dir or DEFAULT_CACHE_DIR).expanduser().resolve())
    try:
        read = _Reading(source, rules, store).read()
    finally:
        store.discard()
    if not take_all:
        _check_counts(read, rules.max_bad_fraction)
    return read


class _Reading:
    """One pass over a source."""

    def __init__(self, source: Source, rules: ReadRules, store: MediaStore) -> None:
        folder = source.folder if rules.image_root is None else rules.image_root
        self._source = source
        self._rules = rules
        self._store = store
        self._media = MediaRoot(folder, store, rules.allow_paths_outside)
        self._prompts = PromptSet()
        self._places: dict[str, tuple[str, int]] = {}  # prompt id to file and number of its row
        self._bad: list[BadRow] = []
        self._columns: set[str] = set()
        self._without_reference: list[int] = []  # places of prompts
        self._filtered = 0
        self._numbers = array("Q")

    def read(self) -> ReadSource:
        rows = self._source.rows()
        first = list(islice(rows, DETECTED_FROM))
        seen = [name for row in first if isinstance(row, Row) for name in row.columns]
        name, layout = chosen_layout(self._rules.layout, self._rules.keys, seen)
        for row in chain(first, rows):
            self._take(row, layout)
            if len(self._prompts) == self._rules.limit:
                break
        self._check_columns(layout)
        prompts = self._with_references(layout)
        self._bad.sort(key=lambda row: (row.file, row.line))
        prompts.store_media_in(self._store.close())
        source = self._source
        return ReadSource(
            source.name, source.word, name, prompts, self._bad, self._filtered, self._numbers
        )

    def _take(self, row: Row | BadRow, layout: Layout) -> None:
        if isinstance(row, BadRow):
            self._bad.append(row)
            return
        self._columns.update(row.columns)
        if not _passes(row.columns, self._rules.filter_columns):
            self._filtered += 1
            return
        try:
            fields = row_fields(row.columns, layout)
            prompt = self._parse(fields, layout)
            self._check_unique(row, prompt.id, is_given=fields.id is not None)
        except RowError as error:
            self._bad.append(BadRow(row.number, str(error), row.file))
            return
        self._places[prompt.id] = (row.file, row.number)
        limit = self._rules.max_chars
        if limit is not None and _text_length(prompt) > limit:
            self._filtered += 1
            return
        if fields.reference is None:
            self._without_reference.append(len(self._prompts))
        self._prompts.append(prompt)
        self._numbers.append(row.number)

    def _parse(self, fields: RowFields, layout: Layout) -> Prompt:
        images = self._media.items(fields.images, layout.images[0])
        videos = self._media.items(fields.videos, layout.videos[0])
        messages = parse_messages(fields.prompt, len(images), len(videos))
        reference = _parse_scalar(fields.reference, layout.reference[0])
        label = _parse_scalar(fields.label, layout.label[0])
        own = _parse_scalar(fields.id, "id")
        names = _identities(images), _identities(videos)
        return Prompt(
            id=own or content_id(messages, *names, reference, label),
            messages=messages,
            images=tuple(image.reference for image in images),
            image_root=self._media.image_root,
            reference=reference,
            label=label,
            videos=tuple(video.reference for video in videos),
        )

    def _check_unique(self, row: Row, identity: str, *, is_given: bool) -> None:
        if identity not in self._places:
            return
        file, number = self._places[identity]
        word = self._source.word
        if not is_given:
            raise RowError(f"the same content as {_place(word, file, number)}")
        both = f"{word}s {number} and {row.number}"
        if file != row.file:
            both = f"{_place(word, file, number)} and {_place(word, row.file, row.number)}"
        raise UserError(
            f"{self._source.name}: {both} have the same id {identity!r}; ids must be unique"
        )

    def _check_columns(self, layout: Layout) -> None:
        """Whatever its name says, a column that no row has is not the bad rows' fault."""
        if not self._columns:
            return
        for names in needed_columns(layout, self._rules.keys):
            if not any(_heads(name) & self._columns for name in names):
                found = ", ".join(sorted(self._columns))
                raise UserError(
                    f"{self._source.name}: no row has a column {names[0]!r}; the columns are "
                    f"{found}; data.layout, data.input_key and its like say what they are"
                )
        for name in self._rules.filter_columns:
            if not _heads(name) & self._columns:
                found = ", ".join(sorted(self._columns))
                raise UserError(
                    f"{self._source.name}: no row has the column {name!r} of data.filter_columns; "
                    f"the columns are {found}"
                )

    def _with_references(self, layout: Layout) -> PromptSet:
        """The prompts, without those that lack a reference where others have one."""
        missing = self._without_reference
        if not missing or len(missing) == len(self._prompts):
            return self._prompts
        reason = f"no {layout.reference[0]!r}, which other rows have"
        for place in missing:
            file, number = self._places[self._prompts.ids[place]]
            self._bad.append(BadRow(number, reason, file))
        dropped = set(missing)
        kept = (n for place, n in enumerate(self._numbers) if place not in dropped)
        self._numbers = array("Q", kept)
        return self._prompts.without(missing)


def _text_length(prompt: Prompt) -> int:
    """Characters of all its messages."""
    contents = [message["content"] for message in prompt.messages]
    return sum(
        len(content)
        if isinstance(content, str)
        else sum(len(part.get("text", "")) for part in content)
        for content in contents
    )


def _passes(columns: Mapping[str, object], wanted: Mapping[str, Sequence[Scalar]]) -> bool:
    """Whether each column that is asked for has one of its values; types count, 1 is not true."""
    return all(
        any(type(value) is type(each) and value == each for each in values)
        for name, values in wanted.items()
        for value in [value_at(columns, name)]
    )


def _identities(items: Sequence[MediaItem]) -> list[str]:
    return [item.identity for item in items]


def _heads(name: str) -> set[str]:
    """A column's name, and the column that it would be inside of."""
    return {name, name.partition(".")[0]}


def _parse_scalar(value: object, key: str) -> str:
    """Text or a number, as text; "" for none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError(f"{key!r} is neither a text nor a number")
    return json.dumps(value)


def _place(word: str, file: str, number: int) -> str:
    return f"{word} {number} of {file}" if file else f"{word} {number}"


def _check_counts(read: ReadSource, max_bad_fraction: float) -> None:
    """Raise UserError for a source of too many bad rows, or of no prompt."""
    good, bad = len(read.prompts), len(read.bad)
    if not good and not bad:
        if read.filtered:
            raise UserError(
                f"{read.name}: none of its {read.filtered} rows passes data.filter_columns and "
                "data.max_prompt_chars"
            )
        raise UserError(f"{read.name}: the file is empty; a row is a prompt, in JSONL a line")
    if good and bad <= max_bad_fraction * (good + bad):
        return
    named = "; ".join(read.where(row) for row in read.bad[:NAMED_BAD_ROWS])
    raise UserError(
        f"{read.name}: {bad} of {good + bad} rows are bad, more than the share "
        f"{max_bad_fraction:g} that data.max_bad_fraction allows ({named})"
    )
