"""Which columns hold what: the layouts that data sets for other trainers have, and one's own."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from lightrft_ray.data.messages import RowError

_ID_KEYS = ("id", "__key__")  # the second is WebDataset's
_ROLES = {"human": "user", "gpt": "assistant"}
DETECTED_FROM = 20
"""Rows that a layout is detected from."""


@dataclass(frozen=True)
class PromptKeys:
    """The names of a file's columns; dots lead into nested ones. The id is always `id`."""

    prompt: str = "prompt"
    images: str = "images"
    reference: str = "reference"
    label: str = "label"
    videos: str = "videos"


DEFAULT_KEYS = PromptKeys()


@dataclass(frozen=True)
class Layout:
    """For each part of a prompt the columns that may hold it: the first that a row has counts."""

    prompt: tuple[str, ...] = ("prompt",)
    images: tuple[str, ...] = ("images",)
    reference: tuple[str, ...] = ("reference",)
    label: tuple[str, ...] = ("label",)
    videos: tuple[str, ...] = ("videos",)
    system: tuple[str, ...] = ()
    is_conversation: bool = False  # whole ones, whose last answer is the reference


LAYOUTS = {
    "lightrft": Layout(),
    "openrlhf": Layout(
        prompt=("input", "context_messages", "prompt"), reference=("label",), label=("datasource",)
    ),
    "verl": Layout(reference=("reward_model.ground_truth",), label=("data_source",)),
    "trl": Layout(
        images=("images", "image"),
        reference=("solution", "ground_truth", "answer", "completion"),
        label=("task",),
    ),
    "llava": Layout(
        prompt=("conversations",),
        images=("image", "images"),
        reference=("reference",),
        videos=("video", "videos"),
        is_conversation=True,
    ),
    "sharegpt": Layout(
        prompt=("conversations", "messages"),
        images=("images", "image"),
        system=("system",),
        is_conversation=True,
    ),
}


@dataclass(frozen=True)
class RowFields:
    """The parts of a prompt as a row holds them, None for what it lacks."""

    prompt: object
    images: object
    reference: object
    label: object
    videos: object
    id: object


def chosen_layout(name: str, keys: PromptKeys, columns: Iterable[str]) -> tuple[str, Layout]:
    """The layout of a name, or for `auto` the one that the columns show, with its name.

    Renamed columns take the place of a layout's own. With any of them, `auto` is `lightrft`.
    """
    if name == "auto":
        name = "lightrft" if keys != DEFAULT_KEYS else detect_layout(columns)
    return name, _with_keys(LAYOUTS[name], keys)


def detect_layout(columns: Iterable[str]) -> str:
    """The layout whose columns these are; `lightrft` where none is."""
    found = set(columns)
    if found & {"conversations", "messages"} and "prompt" not in found:
        is_llava = "conversations" in found and found & {"image", "video"}
        return "llava" if is_llava else "sharegpt"
    if "prompt" in found and found & {"reward_model", "data_source"}:
        return "verl"
    is_openrlhf = found & {"input", "context_messages"} and "prompt" not in found
    if is_openrlhf or ("datasource" in found and "reference" not in found):
        return "openrlhf"
    if "prompt" in found and found & {*LAYOUTS["trl"].reference} and "reference" not in found:
        return "trl"
    return "lightrft"


def row_fields(columns: Mapping[str, object], layout: Layout) -> RowFields:
    """The parts of a row. Raises RowError without a prompt."""
    prompt = _first(columns, layout.prompt)
    if prompt is None:
        raise RowError(f"no {layout.prompt[0]!r}")
    reference = _first(columns, layout.reference)
    if layout.is_conversation:
        prompt, answer = _split_conversation(prompt)
        reference = answer if reference is None else reference
    elif isinstance(reference, list):  # a completion as messages
        reference = _last_content(reference)
    return RowFields(
        prompt=_with_system(prompt, _first(columns, layout.system)),
        images=_first(columns, layout.images),
        reference=reference,
        label=_first(columns, layout.label),
        videos=_first(columns, layout.videos),
        id=_first(columns, _ID_KEYS),
    )


def value_at(columns: Mapping[str, object], name: str) -> object:
    """A column's value, or with dots one inside of it; None where there is none."""
    if name in columns:
        return columns[name]
    head, dot, rest = name.partition(".")
    inner = columns.get(head)
    return value_at(inner, rest) if dot and isinstance(inner, Mapping) else None


def needed_columns(layout: Layout, keys: PromptKeys) -> Iterator[tuple[str, ...]]:
    """Alternatives of which a set must have one: those of the prompt, and renamed columns."""
    for field in fields(keys):
        own = getattr(keys, field.name)
        if field.name == "prompt":
            yield layout.prompt
        elif own != field.default:
            yield (own,)


def _with_keys(layout: Layout, keys: PromptKeys) -> Layout:
    renamed = {
        field.name: (getattr(keys, field.name),)
        for field in fields(keys)
        if getattr(keys, field.name) != field.default
    }
    return replace(layout, **renamed)  # type: ignore[arg-type]  # fields of both by one name


def _first(columns: Mapping[str, object], names: Iterable[str]) -> object:
    found = (value_at(columns, name) for name in names)
    return next((value for value in found if value is not None), None)


def _split_conversation(value: object) -> tuple[object, object]:
    """The turns before the last answer as chat messages, and that answer."""
    if not isinstance(value, list):
        raise RowError("the conversation is no list of turns")
    messages = [_message(turn) for turn in value]
    if messages and messages[-1]["role"] == "assistant":
        return messages[:-1], messages[-1]["content"]
    return messages, None


def _message(turn: object) -> dict[str, object]:
    if not isinstance(turn, Mapping):
        raise RowError("a turn of the conversation is no object")
    role = turn.get("from", turn.get("role"))
    content = turn.get("value", turn.get("content"))
    if role is None or content is None:
        raise RowError("a turn needs from and value, or role and content")
    return {"role": _ROLES.get(role, role) if isinstance(role, str) else role, "content": content}


def _last_content(messages: list[object]) -> object:
    last = messages[-1] if messages else None
    return last.get("content") if isinstance(last, Mapping) else None


def _with_system(prompt: object, system: object) -> object:
    if system is None or system == "":
        return prompt
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    return [{"role": "system", "content": system}, *turns]
