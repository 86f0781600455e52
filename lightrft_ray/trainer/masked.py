"""Sums, means and whitening over the unmasked positions of padded tensors.

What lies at masked positions never matters, not even infinities or NaN: values are replaced
before they are used, since a product with a zero mask would still give NaN, forwards or in
the gradient. Masks are bool or 0/1 of any dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightrft_ray.trainer.moments import Moments


def promote_half(values: Tensor) -> Tensor:
    """Half-precision values as float32; float32 and float64 stay as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def zero_masked(values: Tensor, mask: Tensor) -> Tensor:
    """`values` in float32 or better with exact zeros, and zero gradients, where `mask` is 0."""
    values = promote_half(values)
    return torch.where(mask.bool(), values, torch.zeros_like(values))


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum over the unmasked positions of `dim` (all dimensions if None)."""
    return zero_masked(values, mask).sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean over the unmasked positions of `dim`; 0 where there is none."""
    return masked_sum(values, mask, dim) / mask.bool().sum(dim).clamp(min=1)


def masked_moments(values: Tensor, mask: Tensor) -> Moments:
    """Moments of the unmasked values, in float64."""
    return Moments.of(values[mask.bool()])


def masked_whiten(
    values: Tensor,
    mask: Tensor,
    *,
    shift_mean: bool = True,
    eps: float = 1e-8,
    moments: Moments | None = None,
) -> Tensor:
    """(x − mean) / sqrt(var + eps) with the unbiased variance; 0 at masked positions.

    `moments` are those of the global batch where `values` is only a part of it (merge the
    `masked_moments` of all parts); left out, `values` is the whole batch. With
    `shift_mean=False` the mean is added back. Fewer than two valid values give zeros: one
    value has no spread to be measured by. The statistics are constants for the gradient.
    """
    if moments is None:
        moments = masked_moments(values, mask)
    if moments.count < 2:
        return torch.zeros_like(promote_half(values))
    # Centring in float64: float32 would lose a small spread around a large mean.
    whitened = (values.double() - moments.mean) / (moments.variance + eps) ** 0.5
    if not shift_mean:
        whitened = whitened + moments.mean
    return zero_masked(whitened.to(promote_half(values).dtype), mask)
