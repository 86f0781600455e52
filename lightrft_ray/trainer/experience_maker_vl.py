"""The documented import path of samples and experience."""

from lightrft_ray.trainer.experience_types import (
    ExperienceVL,
    SamplesVL,
    cumulative_product,
    pin_memory,
    to,
)

__all__ = ["ExperienceVL", "SamplesVL", "cumulative_product", "pin_memory", "to"]
