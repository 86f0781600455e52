"""DeepSpeed's checkpoints as files in memory, so that training need not wait for a disk."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import ray
import torch
import xxhash

from lightrft_ray.config.errors import UserError
from lightrft_ray.workers.state_files import deepspeed_classes, state_from_bytes, state_to_bytes
from lightrft_ray.workers.storage import FileEntry, Storage

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

POLICY, CRITIC = "policy", "critic"
"""The roles whose state a checkpoint keeps: the folders of their files."""

Files = dict[str, np.ndarray]
"""Contents of files by name: uint8 arrays."""

_Contents = Callable[[str], bytes]


def _save_to_memory(engine: "DeepSpeedEngine", tag: str) -> Files:
    """This rank's files of a checkpoint by name, `tag/...`.

    A collective: all ranks must call it.
    """
    files: Files = {}

    def save(state: object, name: str) -> None:
        files[name] = state_to_bytes(state)

    # DeepSpeed puts scripts and folders there as well, none of which a checkpoint needs.
    with tempfile.TemporaryDirectory() as folder, _file_access(engine, Path(folder), save=save):
        engine.save_checkpoint(folder, tag=tag, save_latest=False)
    return files


def _load_from_memory(
    engine: "DeepSpeedEngine", tag: str, names: Sequence[str], contents: _Contents
) -> None:
    """Restore an engine from the files of all ranks; `contents` is asked for those it needs.

    A collective: all ranks must call it.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in names:  # DeepSpeed looks on a disk for which files there are
            stand_in = Path(folder) / name
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            stand_in.touch()
        with _file_access(engine, Path(folder), contents=contents):
            engine.load_checkpoint(folder, tag=tag)


@contextmanager
def _file_access(
    engine: "DeepSpeedEngine",
    folder: Path,
    save: Callable[[object, str], None] | None = None,
    contents: _Contents | None = None,
) -> Iterator[None]:
    """Let DeepSpeed save and load by our functions, which take names relative to `folder`."""
    from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

    class Access(TorchCheckpointEngine):
        def save(self, state_dict: object, path: str) -> None:
            if save is None:
                raise RuntimeError("nothing is to be saved while a checkpoint is loaded")
            save(state_dict, os.path.relpath(path, folder))

        def load(self, path: str, map_location: Any = None) -> object:
            if contents is None:
                raise RuntimeError("nothing is to be loaded while a checkpoint is saved")
            name = os.path.relpath(path, folder)
            return state_from_bytes(contents(name), name, map_location, deepspeed_classes())

    own, engine.checkpoint_engine = engine.checkpoint_engine, Access()
    try:
        yield
    finally:
        engine.checkpoint_engine = own


@dataclass(frozen=True)
class Snapshot:
    """Of a rank's part of a checkpoint: the node that it lies on, and what tells its model."""

    node_id: str
    signature: str


@dataclass(frozen=True)
class SnapshotSource:
    """Where the files of a checkpoint lie, and which they are; `signature` is the model's."""

    url: str
    files: Mapping[str, FileEntry]
    signature: str


class Stateful(Protocol):
    """Something of a rank whose state DeepSpeed does not know of."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def take_snapshot(
    engine: "DeepSpeedEngine", role: str, rank: int, parts: Mapping[str, Stateful]
) -> tuple[Files, Snapshot]:
    """Everything that a rank needs to go on from here; `parts` are what DeepSpeed does not know.

    A collective: all ranks must call it.
    """
    files = _save_to_memory(engine, role)
    files |= {_part_file(role, n, rank): state_to_bytes(p.state_dict()) for n, p in parts.items()}
    node_id = ray.get_runtime_context().get_node_id()
    return files, Snapshot(node_id, _signature(engine.module))


def restore_snapshot(
    engine: "DeepSpeedEngine",
    role: str,
    rank: int,
    parts: Mapping[str, Stateful],
    source: SnapshotSource,
) -> None:
    """Go on from where a snapshot of as many ranks and the same parts was taken.

    A collective: all ranks must call it.

    Raises UserError for a checkpoint of another model, DamagedFile for one that has changed.
    """
    signature = _signature(engine.module)
    if source.signature != signature:
        raise UserError(
            f"the checkpoint {source.url} is of another {role} model ({source.signature}) than "
            f"this run's ({signature}): resume with the model that it was made with"
        )
    storage = Storage(source.url)

    def contents(name: str) -> bytes:
        return storage.read(name, source.files[name])

    own = [name for name in source.files if name.startswith(f"{role}/")]
    _load_from_memory(engine, role, own, contents)
    for name, part in parts.items():
        file = _part_file(role, name, rank)
        part.load_state_dict(cast(dict[str, Any], state_from_bytes(contents(file), file)))


def _part_file(role: str, name: str, rank: int) -> str:
    return f"{role}/{name}_rank_{rank}.pt"


def _signature(module: torch.nn.Module) -> str:
    """A short text that differs between models whose parameters have other names or shapes."""
    shapes = {
        name: list(getattr(parameter, "ds_shape", parameter.shape))
        for name, parameter in module.named_parameters()
    }
    digest = xxhash.xxh3_64_hexdigest(json.dumps(shapes, sort_keys=True).encode())
    count = sum(math.prod(shape) for shape in shapes.values())
    return f"{count} parameters, {digest}"
