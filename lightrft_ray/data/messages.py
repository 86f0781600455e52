"""Chat messages of a prompt: text and media placeholders, checked when the data are read."""

import re
from collections.abc import Sequence
from typing import NotRequired, TypedDict

_ROLES = ("system", "user", "assistant")
_PART_KEYS = {"text": {"type", "text"}, "image": {"type"}, "video": {"type"}}
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

    A plain string becomes one user turn, with a part for each image and then each video before the
    text. A chat must hold exactly as many parts of each kind as media, in the order of the media.
    Raises RowError.
    """
    media = ["image"] * image_count + ["video"] * video_count
    if isinstance(value, str):
        return (_user_turn(_checked_text(value), media),)
    if not isinstance(value, list) or not value:
        raise RowError("the prompt is neither a text nor a list of chat messages")
    messages = tuple(_parse_message(message) for message in value)
    if messages[-1]["role"] != "user":
        raise RowError(f"the last message is the {messages[-1]['role']}'s, not the user's")
    for medium in ("image", "video"):
        given, parts = media.count(medium), sum(_count(message, medium) for message in messages)
        if given != parts:
            raise RowError(f"{given} {medium}(s) for {parts} {medium} part(s) in the prompt")
    return messages


def _user_turn(text: str, media: Sequence[str]) -> ChatMessage:
    if not media:
        return {"role": "user", "content": text}
    parts: list[ContentPart] = [{"type": medium} for medium in media]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _parse_message(value: object) -> ChatMessage:
    if not isinstance(value, dict) or set(value) != {"role", "content"}:
        raise RowError("a message needs exactly the keys role and content")
    role, content = value["role"], value["content"]
    if role not in _ROLES:
        raise RowError(f"role {role!r} is not one of {', '.join(_ROLES)}")
    if isinstance(content, list) and content:
        return {"role": role, "content": [_parse_part(part) for part in content]}
    return {"role": role, "content": _checked_text(content)}


def _parse_part(value: object) -> ContentPart:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in _PART_KEYS:
        raise RowError(f"a content part's type is {kind!r}, not text, image or video")
    if set(value) != _PART_KEYS[kind]:
        expected = " and ".join(sorted(_PART_KEYS[kind]))
        raise RowError(f"a content part of type {kind} takes {expected}, not {sorted(value)}")
    if kind != "text":
        return {"type": kind}
    return {"type": "text", "text": _checked_text(value["text"])}


def _checked_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RowError("a text is empty or not a string")
    if _LONE_SURROGATE.search(value):
        raise RowError("a text holds half of a surrogate pair")
    return value


def _count(message: ChatMessage, medium: str) -> int:
    content = message["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == medium for part in content)
