"""Log-ratios of two policies' probabilities, safe to exponentiate."""

from __future__ import annotations

import torch
from torch import Tensor

from lightrft_ray.trainer.masked import promote_half, zero_masked

LOG_RATIO_LIMIT = 20.0
"""Ratios are limited to exp(±20) ≈ 5e±8: far outside every clip range, and far from overflow,
where the zero gradient of a clipped branch times infinity would be NaN."""


def masked_log_ratio(log_probs: Tensor, other_log_probs: Tensor, mask: Tensor) -> Tensor:
    """log π − log π_other, (B, A) float32 or better; 0 with zero gradient where masked."""
    return zero_masked(promote_half(log_probs) - promote_half(other_log_probs), mask)


def bounded_ratio(log_ratio: Tensor) -> Tensor:
    """exp(log_ratio), with log_ratio limited to ±LOG_RATIO_LIMIT (and no gradient beyond it)."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def ratio_excess(log_ratio: Tensor) -> Tensor:
    """ρ − 1 − log ρ ≥ 0 for ρ = exp(log_ratio): the k3 estimate, from samples of ρ's denominator.

    Also exact where ρ is so close to 1 that ρ − 1 in float32 would be rounding.
    """
    return torch.expm1(log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)) - log_ratio
