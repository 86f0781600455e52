"""Files of checkpoints in a folder or in a store that fsspec knows, each with a digest."""

import errno
import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
import ray
import xxhash
from fsspec.implementations.local import LocalFileSystem

from lightrft_ray.config.errors import InfrastructureError, UserError

_REMEDIES = {
    errno.ENOSPC: "free space there, lower checkpoint.max_ckpt_num, or set checkpoint.ckpt_path",
    errno.EDQUOT: "free space there, lower checkpoint.max_ckpt_num, or set checkpoint.ckpt_path",
}
_REMEDY = "make it writable, or set checkpoint.ckpt_path to another place"


@dataclass(frozen=True)
class FileEntry:
    """What a file of a checkpoint must be: its size in bytes and the xxh3_128 of its content."""

    size: int
    digest: str

    @staticmethod
    def of(data: bytes | memoryview) -> "FileEntry":
        """The entry of a file's content."""
        return FileEntry(len(data), xxhash.xxh3_128_hexdigest(data))


class Storage:
    """Files below a url, by their names relative to it.

    A folder's files are on the disk when `write` returns. Errors of file systems are UserErrors
    that name the place, as it is the user who chose it.
    """

    def __init__(self, url: str) -> None:
        """Raises UserError for a url of a kind that no installed package handles."""
        try:
            # Without a cache of listings: what others have written must be seen at once.
            self._files, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(
                f"checkpoints at {url}: {error} (checkpoint.ckpt_path takes a folder or a url that "
                "an installed fsspec package handles, such as s3fs for s3://)"
            ) from error
        # Workers have other working folders.
        self.url: str = self._root if self.is_local else url

    @property
    def is_local(self) -> bool:
        """Whether it is a folder, which can be renamed in one instant."""
        return isinstance(self._files, LocalFileSystem)

    def at(self, name: str) -> "Storage":
        """The files below one folder of it."""
        return Storage(posixpath.join(self.url, name))

    def is_in(self, other: "Storage") -> bool:
        """Whether it is one of the folders in another one."""
        return posixpath.dirname(self._root.rstrip("/")) == other._root.rstrip("/")

    def write(self, name: str, data: bytes | memoryview) -> FileEntry:
        """Write a file, whole, with the folders it lies in; its entry."""
        path = self._path(name)
        with _named_errors("written to", self.url):
            self._files.makedirs(posixpath.dirname(path), exist_ok=True)
            with self._files.open(path, "wb") as file:
                file.write(data)
                if self.is_local:
                    file.flush()
                    os.fsync(file.fileno())
        return FileEntry.of(data)

    def read(self, name: str, expected: FileEntry | None = None) -> bytes:
        """A file's content. Raises FileNotFoundError, and DamagedFile if it is not `expected`."""
        with _named_errors("read from", self.url):
            data: bytes = self._files.cat_file(self._path(name))
        if expected is not None and FileEntry.of(data) != expected:
            raise DamagedFile(
                f"{name} is damaged ({len(data)} of {expected.size} bytes, or another digest)"
            )
        return data

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        try:
            with _named_errors("read from", self.url):
                return int(self._files.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def folders(self) -> list[str]:
        """Names of the folders in it; none where it does not exist itself."""
        try:
            with _named_errors("read from", self.url):
                entries = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [posixpath.basename(e["name"]) for e in entries if e["type"] == "directory"]

    def total_size(self) -> int:
        """Bytes of all files together."""
        with _named_errors("read from", self.url):
            return int(self._files.du(self._root, total=True))

    def move(self, name: str, target: str) -> None:
        """Rename a file or folder; in a folder it is one instant, elsewhere it may be a copy."""
        with _named_errors("written to", self.url):
            if self.is_local:
                Path(self._path(name)).replace(self._path(target))
            else:
                self._files.mv(self._path(name), self._path(target), recursive=True)

    def remove(self, name: str) -> None:
        """Remove a file or a folder with all that is in it; nothing where there is none."""
        with _named_errors("written to", self.url):
            if self._files.exists(self._path(name)):
                self._files.rm(self._path(name), recursive=True)

    def download(self, name: str, folder: Path) -> None:
        """Copy one of its folders into a local one."""
        with _named_errors("read from", self.url):
            self._files.get(self._path(name), str(folder / name), recursive=True)

    def check_writable(self) -> None:
        """Raise UserError where files cannot be written, read and removed."""
        probe = ".write_probe"
        self.write(probe, b"probe")
        self.read(probe)
        self.remove(probe)

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name)


class DamagedFile(Exception):  # noqa: N818 - a state of the disk, and another checkpoint is there
    """A file that is not what was written."""


@contextmanager
def _named_errors(what: str, url: str) -> Iterator[None]:
    """Give errors of file systems the place and a remedy; FileNotFoundError passes."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        remedy = _REMEDIES.get(error.errno or 0, _REMEDY)
        raise UserError(f"checkpoints cannot be {what} {url} ({reason}): {remedy}") from error
    except Exception as error:  # clients of stores have errors of their own for a lost network
        kind = type(error).__name__
        raise InfrastructureError(f"checkpoints cannot be {what} {url}: {kind}: {error}") from error


def write_files(url: str, files: Mapping[str, np.ndarray]) -> dict[str, FileEntry]:
    """Write files by name below `url`; their entries."""
    storage = Storage(url)
    return {name: storage.write(name, data.data) for name, data in files.items()}


@ray.remote(num_cpus=0, max_retries=2)
def write_files_beside(url: str, files: Mapping[str, np.ndarray]) -> dict[str, FileEntry]:
    """`write_files` in a process of its own, beside the one that is busy training."""
    return write_files(url, files)


def check_found(storage: Storage, files: Mapping[str, FileEntry]) -> None:
    """Raise where a file that was written elsewhere is not seen from here with its size."""
    for name, entry in files.items():
        size = storage.size(name)
        if size != entry.size:
            raise InfrastructureError(
                f"{name} of the checkpoint {storage.url} was written with {entry.size} bytes and "
                f"the driver finds {size or 'none'}: checkpoint.ckpt_path must be a place that all "
                "nodes share"
            )
