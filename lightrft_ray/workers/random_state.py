"""The random generators of a process, as a checkpoint keeps them."""

import random
from typing import Any

import numpy as np
import torch


class RandomState:
    """Of Python, numpy and torch, GPUs included."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the `state_dict()` of an equal process."""
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state_all(state["cuda"])
