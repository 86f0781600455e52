"""Media columns of a row: paths, bytes and base64 become references, checked but not decoded."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lightrft_ray.data.media_source import content_in
from lightrft_ray.data.messages import RowError
from lightrft_ray.data.readers.rows import ByteRange
from lightrft_ray.data.stored_media import MediaStore, range_reference

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE = "file://"
_SHOWN = 100
# Where the parts of a multi-modal row carry their medium, a name or its bytes.
_FEATURE_KEYS = ("bytes", "path", "image", "video", "url")


@dataclass(frozen=True)
class MediaItem:
    """How a prompt refers to a medium, and what names it wherever it lies."""

    reference: str
    identity: str


@dataclass(frozen=True)
class MediaRoot:
    """Where a source's media are looked for, and where bytes that its rows hold go."""

    folder: Path
    store: MediaStore
    allow_outside: bool = False

    @property
    def image_root(self) -> Path:
        """The folder that no reference leaves."""
        return Path("/") if self.allow_outside else self.folder

    def items(self, value: object, key: str) -> tuple[MediaItem, ...]:
        """The media of a column, one or a list of them. Raises RowError."""
        if value is None:
            return ()
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(self._item(each, key) for each in values)

    def _item(self, value: object, key: str) -> MediaItem:
        if isinstance(value, ByteRange):
            reference = range_reference(value)
            return MediaItem(reference, reference)
        if isinstance(value, bytes | bytearray):
            return self._stored(bytes(value), key)
        if isinstance(value, Mapping):
            return self._item(_of_feature(value, key), key)
        if not isinstance(value, str) or not value:
            raise RowError(f"{key!r} is neither a path nor a list of paths")
        if (content := _content(value, key)) is not None:
            return self._stored(content, key)
        path = value.removeprefix(_FILE)
        return MediaItem(self._path(path), path)

    def _stored(self, content: bytes, key: str) -> MediaItem:
        if not content:
            raise RowError(f"{key!r} holds an image or video of no bytes")
        reference, digest = self.store.add(content)
        return MediaItem(reference, f"sha256:{digest}")

    def _path(self, path: str) -> str:
        shown = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}..."
        if _ADDRESS.match(path):
            raise RowError(f"{shown!r} is an address, which is not fetched: download it first")
        if "\0" in path:
            raise RowError(f"{shown!r} is no path")
        base = os.path.normpath(self.folder.absolute())
        target = os.path.normpath(os.path.join(base, path))  # noqa: PTH118 - keeps no links apart
        if self.allow_outside:
            return target
        if Path(target).is_relative_to(base):
            return path
        raise RowError(
            f"{shown!r} leaves the folder {base}: move it there, set data.image_root to a folder "
            "above, or data.allow_paths_outside to true"
        )


def _of_feature(value: Mapping[object, object], key: str) -> object:
    """What a data-set feature holds: bytes before the path that they came from."""
    found = next((value[name] for name in _FEATURE_KEYS if value.get(name)), None)
    if found is None or isinstance(found, Mapping):
        raise RowError(f"{key!r} is neither a path nor a list of paths")
    return found


def _content(text: str, key: str) -> bytes | None:
    """The bytes of a text that is content and no path."""
    try:
        return content_in(text)
    except ValueError as error:
        raise RowError(f"{key!r} {error}") from error
