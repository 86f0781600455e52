"""Taking checkpoints of a run: state is copied on the training path, and written beside it."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ray import ObjectRef
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.checkpoint_store import DRIVER_STATE, Checkpoint, CheckpointStore
from lightrft_ray.driver.export import export_beside
from lightrft_ray.driver.manifest import Manifest
from lightrft_ray.driver.workers import Workers
from lightrft_ray.workers.actor_group import wait_for
from lightrft_ray.workers.random_state import RandomState
from lightrft_ray.workers.snapshot import CRITIC, POLICY, Snapshot, SnapshotSource
from lightrft_ray.workers.state_files import state_from_bytes, state_to_bytes
from lightrft_ray.workers.storage import FileEntry, Storage, check_found, write_files_beside

DriverState = Mapping[str, object]
"""What the driver must know to go on, as JSON takes it."""

_RANDOM_STATE = "random_state_driver.pt"


@dataclass(frozen=True)
class _Taken:
    """A checkpoint in memory: the driver's files, and by role each rank's files and snapshot."""

    step: int
    own: dict[str, bytes]
    parts: list[tuple[str, ObjectRef, Snapshot]]


class Checkpointer:
    """Saves the state of workers and driver, and brings it back.

    `take` copies the state to host memory and `write` begins to write that in the background; the
    checkpoint appears in the store when it is whole. What goes wrong there is raised by the next
    call.
    """

    def __init__(self, config: RunConfig, store: CheckpointStore, workers: Workers) -> None:
        """`config` as the user gave it: what a later run is compared with."""
        self._config = config
        self._store = store
        # The others have nothing to keep: they draw no random numbers but by the seeds of calls.
        self._groups = {POLICY: workers.learner}
        if workers.critic is not None:
            self._groups[CRITIC] = workers.critic
        self._taken: _Taken | None = None
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None
        self.last_step: int | None = None

    def is_due(self, step: int) -> bool:
        """Whether the configuration asks for a checkpoint after `step`."""
        every = self._config.checkpoint.save_steps
        return every > 0 and (step % every == 0 or step == self._config.trainer.num_steps)

    def take(self, step: int, state: DriverState) -> None:
        """Copy the state after `step`; waits for the checkpoint before to be written."""
        self.wait()
        random_state = state_to_bytes(RandomState().state_dict()).tobytes()
        own = {DRIVER_STATE: json.dumps(state).encode(), _RANDOM_STATE: random_state}
        pending = {role: group.start_split("snapshot") for role, group in self._groups.items()}
        parts = []
        for role, pairs in pending.items():
            snapshots = self._groups[role].wait([snapshot for _, snapshot in pairs])
            parts += [(role, pair[0], one) for pair, one in zip(pairs, snapshots, strict=True)]
        self._taken = _Taken(step, own, parts)

    def write(self) -> None:
        """Begin to write what was taken, if anything was."""
        taken, self._taken = self._taken, None
        if taken is None:
            return
        self.last_step = taken.step
        self._writer = threading.Thread(target=self._write_aside, args=(taken,), daemon=True)
        self._writer.start()

    def check(self) -> None:
        """Raise what went wrong with a checkpoint in the background."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Return when all that was begun is written; raises what went wrong."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self.check()

    def restore(self, checkpoint: Checkpoint) -> DriverState:
        """Bring workers and this process to where a checkpoint was taken; the driver's state."""
        manifest = checkpoint.manifest
        for role, group in self._groups.items():
            source = SnapshotSource(
                checkpoint.storage.url, manifest.files, manifest.signatures[role]
            )
            group.call("restore", source)
        data = checkpoint.storage.read(_RANDOM_STATE, manifest.files[_RANDOM_STATE])
        RandomState().load_state_dict(cast(dict[str, Any], state_from_bytes(data, _RANDOM_STATE)))
        self.last_step = checkpoint.step
        state: DriverState = json.loads(checkpoint.driver_state())
        return state

    def _write_aside(self, taken: _Taken) -> None:
        try:
            self._write(taken)
        except BaseException as error:  # handed to the thread that trains
            self._error = error

    def _write(self, taken: _Taken) -> None:
        self._store.discard_unfinished(taken.step)
        place = self._store.place_of(taken.step)
        files = self._write_parts(place, taken)
        files |= {name: place.write(name, data) for name, data in taken.own.items()}
        files |= self._export(place, taken)
        check_found(place, files)
        manifest = Manifest(
            step=taken.step,
            config=self._config.model_dump(mode="json"),
            ranks={role: len(group) for role, group in self._groups.items()},
            signatures={role: snapshot.signature for role, _, snapshot in taken.parts},
            files=files,
            score=json.loads(taken.own[DRIVER_STATE])["score"],
        )
        self._store.complete(manifest)
        settings = self._config.checkpoint
        self._store.rotate(
            settings.max_ckpt_num, settings.max_ckpt_mem, keep_best=settings.keep_best
        )

    def _export(self, place: Storage, taken: _Taken) -> dict[str, FileEntry]:
        """The Hugging Face folder, made by a process of its own, where it is asked for."""
        if not self._config.checkpoint.save_hf_ckpt:
            return {}
        results = json.loads(taken.own[DRIVER_STATE])["results"]
        pending = export_beside.remote(place.url, self._config, taken.step, results)
        (files,) = wait_for(
            [pending], self._config.checkpoint.save_timeout, f"the export to {place.url}"
        )
        return dict(files)

    def _write_parts(self, place: Storage, taken: _Taken) -> dict[str, FileEntry]:
        """Each rank's files, written on its own node."""
        pending = [
            write_files_beside.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(snapshot.node_id, soft=True)
            ).remote(place.url, files)
            for _, files, snapshot in taken.parts
        ]
        timeout = self._config.checkpoint.save_timeout
        written = wait_for(pending, timeout, f"the writers of the checkpoint {place.url}")
        return {name: entry for part in written for name, entry in part.items()}
