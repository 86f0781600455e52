"""The checkpoints of a run in one place: which are complete, which is the newest, which may go."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lightrft_ray.config import UserError
from lightrft_ray.driver.manifest import MANIFEST, Manifest, read_manifest
from lightrft_ray.workers.storage import DamagedFile, FileEntry, Storage

DRIVER_STATE = "driver.json"
"""What the driver must know to go on: plain values."""

_NAME = re.compile(r"step_(\d+)")
_UNFINISHED = "unfinished_"
_WITHDRAWN = "manifest.withdrawn.json"
_READERS = 8
_GB = 10**9


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    storage: Storage
    manifest: Manifest

    @property
    def step(self) -> int:
        """The step after which it was taken."""
        return self.manifest.step

    def driver_state(self) -> bytes:
        """The content of `DRIVER_STATE`."""
        return self.storage.read(DRIVER_STATE, self.manifest.files[DRIVER_STATE])

    def check(self) -> None:
        """Raise DamagedFile where a file is not what was written."""

        def check_one(item: tuple[str, FileEntry]) -> None:
            name, entry = item
            size = self.storage.size(name)
            if size != entry.size:
                found = "is missing" if size is None else f"has {size} of {entry.size} bytes"
                raise DamagedFile(f"{name} {found}")
            self.storage.read(name, entry)

        with ThreadPoolExecutor(_READERS) as readers:
            list(readers.map(check_one, self.manifest.files.items()))


class CheckpointStore:
    """Folders `step_N` at a url; one with a manifest is a checkpoint, complete when it appeared.

    In a local folder a checkpoint is written under another name and renamed; elsewhere its manifest
    is written last. Either way it is there whole or not at all, and a stop at any point leaves the
    ones before it as they are.
    """

    def __init__(self, url: str) -> None:
        self._storage = Storage(url)

    @property
    def url(self) -> str:
        """Where the checkpoints are."""
        return self._storage.url

    def begin(self, resumed_at: int | None, *, overwrite: bool) -> None:
        """Make ready for the checkpoints of a run; with `overwrite` those that are there go.

        `resumed_at` is the step that the run goes on from, in this store; None for a new run.
        Raises UserError where nothing can be written, or checkpoints of another run lie.
        """
        self._storage.check_writable()
        steps = self.steps()
        if resumed_at is None and steps and not overwrite:
            raise UserError(
                f"{self.url} already holds checkpoints, up to step {steps[0]}: set "
                "checkpoint.ckpt_path to another place, checkpoint.resume to auto to go on with "
                "that run, or overwrite_output true to replace it"
            )
        self._withdraw_after(-1 if resumed_at is None else resumed_at)

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, the newest first."""
        found = [int(m[1]) for name in self._storage.folders() if (m := _NAME.fullmatch(name))]
        complete = [step for step in found if self._size(step, MANIFEST) is not None]
        return sorted(complete, reverse=True)

    def open(self, step: int) -> Checkpoint:
        """A complete checkpoint, checked. Raises DamagedFile."""
        storage = self._storage.at(_name(step))
        checkpoint = Checkpoint(storage, read_manifest(storage))
        checkpoint.check()
        return checkpoint

    def newest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is intact; `report` gets a line for each that is not.

        None where there are none. Raises UserError where all there are have been damaged.
        """
        steps = self.steps()
        for step in steps:
            try:
                return self.open(step)
            except DamagedFile as fault:
                report(f"the checkpoint {self.url}/{_name(step)} is not used: {fault}")
        if steps:
            raise UserError(
                f"all {len(steps)} checkpoints in {self.url} are damaged: restore one, or start "
                "anew with checkpoint.resume never and overwrite_output true"
            )
        return None

    def place_of(self, step: int) -> Storage:
        """Where the files of a checkpoint are to be written, before `complete`."""
        return self._storage.at(_unfinished(step) if self._storage.is_local else _name(step))

    def discard_unfinished(self, step: int) -> None:
        """Clear the place of a step from what an earlier attempt left there."""
        for name in {_unfinished(step), _name(step)}:
            if self._storage.at(name).size(MANIFEST) is None:
                self._storage.remove(name)

    def complete(self, manifest: Manifest) -> None:
        """Make the written files a checkpoint."""
        step = manifest.step
        self.place_of(step).write(MANIFEST, manifest.to_bytes())
        if self._storage.is_local:
            self._storage.remove(_name(step))  # of the same step, before the run was resumed
            self._storage.move(_unfinished(step), _name(step))

    def _withdraw_after(self, step: int) -> None:
        """Make later checkpoints unusable: those of a course that the run does not take any more.

        Their files stay until the next checkpoint is complete.
        """
        for later in self.steps():
            if later > step:
                name = _name(later)
                self._storage.move(f"{name}/{MANIFEST}", f"{name}/{_WITHDRAWN}")

    def best(self) -> int | None:
        """The step of the checkpoint with the best score, the latest of equals; None without any.

        Raises DamagedFile where a manifest is no more what it was.
        """
        scored = [m for m in self._manifests().values() if m.score is not None]
        return max(scored, key=lambda m: (m.score, m.step)).step if scored else None

    def rotate(self, count: int, gigabytes: float | None, *, keep_best: bool = False) -> list[int]:
        """Remove checkpoints but the `count` newest that fit into `gigabytes`; steps removed.

        The newest always stays, and so does the best where `keep_best`. What is no checkpoint is
        removed, too.
        """
        steps = self.steps()
        self._remove_remains(steps)
        best = self.best() if keep_best else None
        sizes = {step: manifest.size for step, manifest in self._manifests().items()}
        kept = _kept(sizes, count, gigabytes, [] if best is None else [best])
        removed = [step for step in steps if step not in kept]
        for step in removed:
            self._storage.remove(f"{_name(step)}/{MANIFEST}")  # first: half of one is none
            self._storage.remove(_name(step))
        return removed

    def _manifests(self) -> dict[int, Manifest]:
        """By step, the newest first."""
        return {step: read_manifest(self._storage.at(_name(step))) for step in self.steps()}

    def _remove_remains(self, steps: Sequence[int]) -> None:
        whole = {_name(step) for step in steps}
        for name in self._storage.folders():
            if name not in whole and _NAME.fullmatch(name.removeprefix(_UNFINISHED)):
                self._storage.remove(name)

    def _size(self, step: int, name: str) -> int | None:
        return self._storage.size(f"{_name(step)}/{name}")


def _kept(
    sizes: Mapping[int, int], count: int, gigabytes: float | None, keep: Sequence[int]
) -> set[int]:
    """Steps that stay, of `sizes` in bytes, the newest first."""
    kept: set[int] = {step for step in keep if step in sizes}
    limit = float("inf") if gigabytes is None else gigabytes * _GB
    total = sum(sizes[step] for step in kept)
    for number, (step, size) in enumerate(sizes.items()):
        if step in kept:
            continue
        total += size
        if number > 0 and (number >= count or total > limit):
            break
        kept.add(step)
    return kept


def _name(step: int) -> str:
    return f"step_{step}"


def _unfinished(step: int) -> str:
    return f"{_UNFINISHED}{_name(step)}"
