"""Chat messages of a prompt: text and media placeholders, checked when the data are read."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NotRequired, TypedDict

Medium = Literal["image", "video"]
_MEDIA: tuple[Medium, ...] = ("image", "video")

_ROLES = ("system", "user", "assistant")
_PART_KEYS = {"text": {"type", "text"}, "image": {"type"}, "video": {"type"}}
_MARKER = re.compile("<(image|video)>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell what no tokenizer can encode


class ContentPart(TypedDict):
    """`{"type": "image"}`, `{"type": "video"}` or `{"type": "text", "text": ...}`."""

    type: str
    text: NotRequired[str]


class ChatMessage(TypedDict):
    """One turn; the content is a string or a list of parts."""

    role: str
    content: str | list[ContentPart]


class RowError(ValueError):
    """Why a row of a data file cannot be used; the message is the reason alone."""


def parse_messages(
    value: object, image_count: int, video_count: int = 0
) -> tuple[ChatMessage, ...]:
    """Check a prompt column: a plain string, or a list of chat messages that ends with the user.

    `<image>` and `<video>` in a text become parts in their place. A plain string without any gets
    a part for each image and then each video before the text. Otherwise there must be exactly as
    many parts of each kind as media, in the order of the media. Raises RowError.
    """
    counts = dict(zip(_MEDIA, (image_count, video_count), strict=True))
    if isinstance(value, str):
        messages: tuple[ChatMessage, ...] = (_user_turn(_checked_text(value), counts),)
    elif not isinstance(value, list) or not value:
        raise RowError("the prompt is neither a text nor a list of chat messages")
    else:
        messages = tuple(_parse_message(message) for message in value)
    if messages[-1]["role"] != "user":
        raise RowError(f"the last message is the {messages[-1]['role']}'s, not the user's")
    for medium, given in counts.items():
        parts = _count_parts(messages, medium)
        if given != parts:
            raise RowError(f"{given} {medium}(s) for {parts} {medium} part(s) in the prompt")
    return messages


def _count_parts(messages: Iterable[ChatMessage], medium: Medium) -> int:
    """How many parts of a kind the messages have."""
    contents = [message["content"] for message in messages]
    parts = [part for content in contents if not isinstance(content, str) for part in content]
    return sum(part["type"] == medium for part in parts)


def _user_turn(text: str, counts: Mapping[Medium, int]) -> ChatMessage:
    if not any(counts.values()) or _MARKER.search(text):
        return {"role": "user", "content": _content(text)}
    parts: list[ContentPart] = [
        {"type": medium} for medium, count in counts.items() for _ in range(count)
    ]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _parse_message(value: object) -> ChatMessage:
    message = _without_nulls(value)
    if set(message) != {"role", "content"}:
        raise RowError("a message needs exactly the keys role and content")
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or role not in _ROLES:
        raise RowError(f"role {role!r} is not one of {', '.join(_ROLES)}")
    if isinstance(content, list) and content:
        parts = [part for each in content for part in _parse_part(each)]
        return {"role": role, "content": parts}
    return {"role": role, "content": _content(_checked_text(content))}


def _parse_part(value: object) -> list[ContentPart]:
    part = _without_nulls(value)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PART_KEYS:
        raise RowError(f"a content part's type is {kind!r}, not text, image or video")
    if set(part) != _PART_KEYS[kind]:
        expected = " and ".join(sorted(_PART_KEYS[kind]))
        raise RowError(f"a content part of type {kind} takes {expected}, not {sorted(part)}")
    if kind != "text":
        return [{"type": kind}]
    text = _checked_text(part["text"])
    content = _content(text)
    return [{"type": "text", "text": text}] if isinstance(content, str) else content


def _without_nulls(value: object) -> dict[str, object]:
    """A mapping's set keys: in columnar files each part has the keys of all."""
    if not isinstance(value, dict):
        return {}
    return {str(key): each for key, each in value.items() if each is not None}


def _content(text: str) -> str | list[ContentPart]:
    """The text, or where it has markers the parts between and at them."""
    if not _MARKER.search(text):
        return text
    pieces = _MARKER.split(text)  # text, marker, text, ..., marker, text
    return [
        {"type": piece} if place % 2 else {"type": "text", "text": piece}
        for place, piece in enumerate(pieces)
        if piece
    ]


def _checked_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RowError("a text is empty or not a string")
    if _LONE_SURROGATE.search(value):
        raise RowError("a text holds half of a surrogate pair")
    return value
