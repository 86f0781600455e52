"""A process's random generators, kept and set back."""

import io
import random

import numpy as np
import torch

from lightrft_ray.workers.random_state import RandomState


def _draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_the_same_numbers_follow() -> None:
    block = io.BytesIO()
    torch.save(RandomState().state_dict(), block)
    drawn = [_draw() for _ in range(3)]
    block.seek(0)
    RandomState().load_state_dict(torch.load(block, weights_only=True))
    assert [_draw() for _ in range(3)] == drawn
