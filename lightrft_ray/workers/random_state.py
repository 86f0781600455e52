"""The random generators of a process, as a checkpoint keeps them."""

import random

import numpy as np
import torch

RandomState = dict[str, object]


def random_state() -> RandomState:
    """Of Python, numpy and torch, GPUs included."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: RandomState) -> None:
    """Go on from `random_state()` of an equal process."""
    random.setstate(state["python"])  # type: ignore[arg-type]
    np.random.set_state(state["numpy"])  # type: ignore[arg-type]
    torch.set_rng_state(state["torch"])  # type: ignore[arg-type]
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])  # type: ignore[arg-type]
