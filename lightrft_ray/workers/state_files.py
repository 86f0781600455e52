"""Files of state as torch writes them, read as data: nothing that they hold is run.

A pickle can name any function to be called when it is read. Whoever can write where checkpoints
lie, or hands one on, could run code by it. So only tensors, plain values and the few classes that
DeepSpeed's states are made of are let in.
"""

import io
import pickle
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from lightrft_ray.config.errors import UserError

MapLocation = torch.device | str | dict[str, str] | None


def state_to_bytes(state: object) -> np.ndarray:
    """The content of a file: a uint8 array (size,)."""
    block = io.BytesIO()
    torch.save(state, block)
    return np.frombuffer(block.getbuffer(), dtype=np.uint8)


def state_from_bytes(
    data: bytes, name: str, map_location: MapLocation = None, allowed: Sequence[type] = ()
) -> object:
    """The state in a file, of tensors, plain values and the `allowed` classes.

    Raises UserError that says `name` where there is anything else.
    """
    return _load(io.BytesIO(data), name, map_location, allowed)


def state_from_file(path: Path, allowed: Sequence[type] = ()) -> object:
    """As `state_from_bytes`; tensors stay on the disk until they are used, and are on the CPU."""
    return _load(path, path.name, "cpu", allowed, is_mapped=True)


def deepspeed_classes() -> list[type]:
    """What DeepSpeed's states hold beside tensors and plain values."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [LossScaler, ZeroStageEnum, fragment_address]


def _load(
    source: io.BytesIO | Path,
    name: str,
    map_location: MapLocation,
    allowed: Sequence[type],
    *,
    is_mapped: bool = False,
) -> object:
    try:
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(source, map_location=map_location, weights_only=True, mmap=is_mapped)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{name} of the checkpoint is refused, as it holds more than data ({_reason(error)}): "
            "use a checkpoint that this program has written"
        ) from error


def _reason(error: pickle.UnpicklingError) -> str:
    """The sentence of torch's long message that names what was found."""
    named = re.search(r"[^.\n]*GLOBAL \S+", str(error))
    return named[0].strip() if named else "it is no file of torch"
