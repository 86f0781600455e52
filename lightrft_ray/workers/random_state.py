"""The random generators of a process, as a checkpoint keeps them."""

import random
from typing import Any

import numpy as np
import torch


class RandomState:
    """Of Python, numpy and torch, GPUs included."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: tensors and plain values."""
        numpy_state = np.random.get_state(legacy=False)
        numpy_state["state"]["key"] = torch.from_numpy(numpy_state["state"]["key"].astype(np.int64))
        return {
            "python": random.getstate(),
            "numpy": numpy_state,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the `state_dict()` of an equal process."""
        random.setstate(state["python"])
        key = state["numpy"]["state"]["key"].numpy().astype(np.uint32)
        np.random.set_state(state["numpy"] | {"state": state["numpy"]["state"] | {"key": key}})
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state_all(state["cuda"])
