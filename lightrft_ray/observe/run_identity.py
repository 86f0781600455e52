"""Which run a folder, a log line or a tracker's entry belongs to."""

import json
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from lightrft_ray.observe.jsonl import write_whole


@dataclass(frozen=True)
class RunIdentity:
    """A run's id, the same through driver, workers and trackers, and when it began (ISO, UTC)."""

    run_id: str
    started: str

    @property
    def started_at(self) -> float:
        """When it began, in seconds since 1970."""
        return datetime.fromisoformat(self.started).timestamp()


def identify(path: Path) -> RunIdentity:
    """The identity that the file `path` holds, so that a resumed run keeps it; else a new one.

    A file that holds none, which a killed run may have left, is replaced.
    """
    known = _read(path)
    if known is not None:
        return known
    now = datetime.now(UTC)
    made = RunIdentity(f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", now.isoformat())
    write_whole(path, json.dumps(asdict(made)) + "\n")
    return made


def _read(path: Path) -> RunIdentity | None:
    if not path.is_file():
        return None
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        started = datetime.fromisoformat(entry["started"])  # what is no time is no identity
        return RunIdentity(str(entry["run_id"]), started.isoformat())
    except (ValueError, TypeError, KeyError):
        return None
