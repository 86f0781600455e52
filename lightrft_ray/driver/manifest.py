"""What a checkpoint says of itself: the file whose presence makes a folder a checkpoint."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import xxhash

from lightrft_ray.workers.storage import DamagedFile, FileEntry, Storage

MANIFEST = "manifest.json"
_FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """Step, configuration and files of a checkpoint; `signatures` tell its models by role.

    `config` is the run's as JSON, `ranks` counts the processes by role, `score` is the held-out
    accuracy where the step was evaluated.
    """

    step: int
    config: Mapping[str, Any]
    ranks: Mapping[str, int]
    signatures: Mapping[str, str]
    files: Mapping[str, FileEntry]
    score: float | None = None

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.files.values())

    def to_bytes(self) -> bytes:
        """JSON, with a digest of itself so that a changed bit shows."""
        fields = json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True).encode()
        digest = xxhash.xxh3_128_hexdigest(fields)
        return json.dumps({"digest": digest, **json.loads(fields)}, indent=1).encode()

    @staticmethod
    def from_bytes(data: bytes) -> "Manifest":
        """The inverse of `to_bytes`. Raises DamagedFile for what is no manifest."""
        try:
            fields = json.loads(data)
            digest = fields.pop("digest")
            intact = digest == xxhash.xxh3_128_hexdigest(
                json.dumps(fields, sort_keys=True).encode()
            )
        except (ValueError, AttributeError, KeyError) as error:
            raise DamagedFile(f"{MANIFEST} is cut short or overwritten") from error
        if not intact:
            raise DamagedFile(f"{MANIFEST} has been changed since it was written")
        if fields.pop("format") != _FORMAT:
            raise DamagedFile(f"{MANIFEST} is of another version of this program")
        files = {name: FileEntry(**entry) for name, entry in fields.pop("files").items()}
        return Manifest(**fields, files=files)


def read_manifest(storage: Storage) -> Manifest:
    """A checkpoint's manifest. Raises FileNotFoundError where the folder has none."""
    return Manifest.from_bytes(storage.read(MANIFEST))
