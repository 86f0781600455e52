"""The course of the learning rate."""

import math
from collections.abc import Callable

from lightrft_ray.config import TrainerConfig


def learning_rate_factor(trainer: TrainerConfig, total_steps: int) -> Callable[[int], float]:
    """Factor on the peak learning rate, by the number of optimizer steps done.

    It rises linearly over `lr_warmup_steps`; then it stays, or falls to 0 at `total_steps` in a
    line or in half a cosine.
    """
    warmup = trainer.lr_warmup_steps

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        progress = min((step - warmup) / max(total_steps - warmup, 1), 1.0)
        return _DECAY[trainer.lr_scheduler](progress)

    return factor


_DECAY: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
}
