"""A prompt: messages, and references to its images and videos, never pixels."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrft_ray.data.messages import ChatMessage


@dataclass(frozen=True)
class Prompt:
    """One prompt of a run; small enough to travel through the driver whatever its media's size."""

    id: str
    messages: tuple[ChatMessage, ...]
    images: tuple[str, ...]  # paths, in the order of the image parts
    image_root: Path  # where relative paths start, and which none may leave
    reference: str  # the right answer, "" where the data have none
    label: str  # the kind of task, "" where the data have none
    videos: tuple[str, ...] = ()  # as images


def content_id(
    messages: Sequence[ChatMessage],
    images: Sequence[str],
    videos: Sequence[str],
    reference: str,
    label: str,
) -> str:
    """A stable id of a prompt without one; media are named by path or by a digest of the bytes."""
    parts: list[object] = [messages, images, reference, label]
    content = json.dumps([*parts, videos] if videos else parts, sort_keys=True)
    return "prompt-" + hashlib.sha256(content.encode()).hexdigest()[:16]
