"""The critic's loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.trainer.aggregation import Denominators, aggregate
from lightrft_ray.trainer.masked import zero_masked
from lightrft_ray.trainer.metric_sums import Mean, Metrics


@dataclass(frozen=True)
class ValueLoss:
    """`loss` is the scalar to differentiate; metrics hold the `clip_fraction` of tokens."""

    loss: Tensor
    metrics: Metrics


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    action_mask: Tensor,
    *,
    clip: float | None,
    aggregation: str,
    denominators: Denominators,
    group_tokens: Tensor | None = None,
) -> ValueLoss:
    """½ max((V − R)², (V_old + clip(V − V_old, ±clip) − R)²), as in PPO's reference code (2017).

    All tensors are (B, A), in any float dtype; the result is float32 or better, with gradients by
    `values`. `clip=None` leaves the second term out. `aggregation`, `denominators` (of the
    *global* batch) and `group_tokens` are those of `aggregation.aggregate`. A token counts as
    clipped where the second term is strictly larger.
    """
    mask = action_mask.bool()
    values = zero_masked(values, mask)
    returns = zero_masked(returns.detach(), mask)
    losses = (values - returns).square() / 2
    is_clipped = torch.zeros_like(mask)
    if clip is not None:
        bounded = _bounded(values, zero_masked(old_values.detach(), mask), clip)
        bounded_losses = (bounded - returns).square() / 2
        is_clipped = bounded_losses > losses
        losses = torch.where(is_clipped, bounded_losses, losses)
    loss = aggregate(
        losses, mask, mode=aggregation, denominators=denominators, group_tokens=group_tokens
    )
    return ValueLoss(loss, {"clip_fraction": Mean.of(is_clipped, mask)})


def _bounded(values: Tensor, old_values: Tensor, clip: float) -> Tensor:
    """`values` within ±clip of `old_values`.

    Inside the range they are passed through: old + (new − old) would differ from new by
    rounding, and tokens would count as clipped that are not.
    """
    change = values - old_values
    return torch.where(change.abs() <= clip, values, old_values + change.clamp(-clip, clip))
