"""Where the bytes of an image or a video come from: a file, the row itself, or memory."""

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from PIL import Image

from lightrft_ray.config.errors import DataFault
from lightrft_ray.data.stored_media import is_stored, read_stored

MediaReference = str | bytes | Mapping[str, object] | Image.Image
"""A path, a `data:` URI, base64 text, the bytes of a file, the Hugging Face feature
`{"bytes": …, "path": …}`, or a decoded image."""

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DATA_URI = re.compile(r"data:[\w.+/-]*(;[\w=.-]+)*;base64,", re.IGNORECASE)
# How base64 of each format's first bytes reads; a JPEG's looks like an absolute path.
_ENCODED_STARTS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "Qk", "SUkq", "TU0A", "AAAA", "GkXf")
_SHORTEST_ENCODED = 64  # characters; no image is smaller
_LONGER_THAN_PATHS = 256  # characters without a dot, whatever they begin with
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_SHOWN_LENGTH = 200  # characters of a reference in an error; a data: address may have millions
_SHOWN_OF_CONTENT = 40  # of one that is content itself


Decoded = TypeVar("Decoded", bytes, bytes | None)


class MediaError(DataFault):
    """An image or a video that cannot be used: names the reference and the reason."""


def describe(reference: object) -> str:
    """A reference as errors name it: a path in full, content by its size."""
    if isinstance(reference, bytes):
        return f"of {len(reference)} bytes"
    if isinstance(reference, Image.Image):
        return f"in memory of {reference.width}x{reference.height} pixels"
    if isinstance(reference, Mapping):
        return describe(reference.get("path") or reference.get("bytes") or "without bytes and path")
    if not isinstance(reference, str):
        return f"given as {type(reference).__name__}"
    is_content = _claims_content(reference) or _is_base64(reference)
    limit = _SHOWN_OF_CONTENT if is_content else _SHOWN_LENGTH
    return reference if len(reference) <= limit else f"{reference[:limit]}..."


def read_medium(reference: MediaReference, root: Path, medium: str = "image") -> bytes:
    """The encoded bytes of a medium that is not in memory as pixels.

    Paths are relative to `root`. Raises MediaError, which calls it a `medium`, if there is nothing
    to read, if a path is an address or leaves the root by its spelling (symbolic links inside the
    root are followed), and if base64 is broken; DataFault if what the rows held is gone.
    """
    if isinstance(reference, bytes):
        return reference
    if isinstance(reference, Mapping):
        return _read_feature(reference, root, medium)
    if not isinstance(reference, str):
        raise unusable(medium, reference, "is neither a path nor the bytes of a file")
    if is_stored(reference):
        return read_stored(reference)
    content = _decoded(content_in, reference, medium)
    return _read_file(reference, root, medium) if content is None else content


def unusable(medium: str, reference: object, reason: str) -> MediaError:
    """The error for a medium that cannot be used."""
    return MediaError(f"{medium} {describe(reference)}: {reason}")


def content_in(text: str) -> bytes | None:
    """The bytes that a text holds: a `data:` URI, or base64 alone. None for a path.

    Base64 alone is told by its alphabet and the first bytes of a format, or by being longer than
    any path. Raises ValueError for a `data:` URI of another encoding, and for broken base64.
    """
    uri = _DATA_URI.match(text)
    if uri is not None:
        return from_base64(text[uri.end() :])
    if _claims_content(text):
        raise ValueError("is a data: address that is not base64")
    return from_base64(text) if _is_base64(text) else None


def from_base64(text: str) -> bytes:
    """The bytes of base64 that may be broken into lines and lack its padding.

    Raises ValueError for what is none.
    """
    encoded = re.sub(r"\s", "", text)
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"holds base64 that is damaged ({error})") from error


def _claims_content(text: str) -> bool:
    return text[:5].lower() == "data:"


def _is_base64(text: str) -> bool:
    is_long = len(text) >= _LONGER_THAN_PATHS or (
        len(text) >= _SHORTEST_ENCODED and text.startswith(_ENCODED_STARTS)
    )
    return is_long and _BASE64.fullmatch(text) is not None


def _read_feature(feature: Mapping[str, object], root: Path, medium: str) -> bytes:
    content, path = feature.get("bytes"), feature.get("path")
    if isinstance(content, bytes):
        return content
    if isinstance(content, str) and content:  # JSON has no bytes
        return _decoded(content_in, content, medium) or _decoded(from_base64, content, medium)
    if isinstance(path, str) and path:
        return read_medium(path, root, medium)
    raise unusable(medium, feature, "has neither bytes nor a path")


def _decoded(decode: Callable[[str], Decoded], text: str, medium: str) -> Decoded:
    try:
        return decode(text)
    except ValueError as error:
        raise unusable(medium, text, str(error)) from error


def _read_file(reference: str, root: Path, medium: str) -> bytes:
    if _ADDRESS.match(reference):
        raise unusable(
            medium, reference, "addresses are not fetched; download it and give its path"
        )
    base = os.path.normpath(root.absolute())
    path = Path(os.path.normpath(Path(base) / reference))
    if not path.is_relative_to(base):
        raise unusable(medium, reference, f"lies outside the image root {base}")
    try:
        if not path.is_file():  # a device or a pipe would block
            reason = "is not a file" if path.exists() else "does not exist"
            raise unusable(medium, reference, f"{reason} under the image root {base}")
        return path.read_bytes()
    except OSError as error:
        raise unusable(medium, reference, f"cannot be read ({error})") from error
