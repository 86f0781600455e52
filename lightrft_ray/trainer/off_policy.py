"""Correcting for a generator whose probabilities are not quite the trainer's.

The generator samples with its own kernels, precision and, in asynchronous runs, older weights.
Importance weights w = π_trainer,old / π_generator bring the expectation back; because products of
them explode, they are truncated (cut at a cap) or masked (dropped outside a band).

Sources: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
(truncated importance sampling); Ant Ling team 2025, IcePop, in the Ring-1T report (token masks);
Liu et al. 2025, "When Speed Kills Stability" (sequence and geometric masks).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.trainer.log_ratio import bounded_ratio, masked_log_ratio, ratio_excess
from lightrft_ray.trainer.masked import masked_sum, zero_masked
from lightrft_ray.trainer.metric_sums import (
    EffectiveSampleSize,
    Maximum,
    Mean,
    Metrics,
    Minimum,
)
from lightrft_ray.trainer.policy_tokens import geometric_mean


@dataclass(frozen=True)
class Correction:
    """What a correction does: weights, and which tokens it changed.

    `weights` broadcasts to (B, A); `is_hit` (bool, likewise) marks truncated or masked tokens;
    `is_kept` is (B,) bool, False for rows that were rejected as a whole.
    """

    weights: Tensor
    is_hit: Tensor
    is_kept: Tensor


@dataclass(frozen=True)
class ImportanceWeights:
    """Constants that multiply the token losses, (B, A) with 0 where masked, and their metrics.

    `kept_rows` is (B,) bool: False where a sequence-level correction rejected the row.
    """

    weights: Tensor
    kept_rows: Tensor
    metrics: Metrics


@torch.no_grad()
def importance_weights(
    old_log_probs: Tensor,
    rollout_log_probs: Tensor,
    action_mask: Tensor,
    *,
    correction: Callable[[Tensor, Tensor], Correction],
) -> ImportanceWeights:
    """Weights for `token_weights` of `policy_loss`; all tensors are (B, A).

    `old_log_probs` are the trainer's before the update, `rollout_log_probs` the generator's.
    `correction` is one of CORRECTIONS with its bounds bound by `functools.partial`. Rejected
    tokens stay in the loss's denominator: dropping them there would raise the weight of the rest.

    Metrics over tokens: `hit_fraction` (truncated or masked), `weight_mean` (zeros included),
    `ess` of the weights, and those of `mismatch_metrics`.
    """
    mask = action_mask.bool()
    log_ratio = masked_log_ratio(old_log_probs, rollout_log_probs, mask)
    result = correction(log_ratio, mask)
    weights = zero_masked(result.weights.expand_as(log_ratio), mask)
    own: Metrics = {
        "hit_fraction": Mean.of(result.is_hit.expand_as(mask), mask),
        "weight_mean": Mean.of(weights, mask),
        "ess": EffectiveSampleSize.of(weights, mask),
    }
    metrics = own | mismatch_metrics(old_log_probs, rollout_log_probs, mask)
    return ImportanceWeights(weights, result.is_kept | ~mask.any(dim=1), metrics)


@torch.no_grad()
def mismatch_metrics(log_probs: Tensor, rollout_log_probs: Tensor, action_mask: Tensor) -> Metrics:
    """How far the generator's log-probs are from the trainer's at the same weights; all (B, A).

    Over tokens: `log_prob_gap_max` = max |log w|, `mismatch_k1` = mean(−log w) and `mismatch_k3` =
    mean(w − 1 − log w) of KL(generator ‖ trainer), `mismatch_ess` of the w, and their extremes
    `raw_token_ratio_max` and `_min`.
    """
    mask = action_mask.bool()
    log_ratio = masked_log_ratio(log_probs, rollout_log_probs, mask)
    ratio = bounded_ratio(log_ratio)
    return {
        "log_prob_gap_max": Maximum.of(log_ratio.abs(), mask),
        "mismatch_k1": Mean.of(-log_ratio, mask),
        "mismatch_k3": Mean.of(ratio_excess(log_ratio), mask),
        "mismatch_ess": EffectiveSampleSize.of(ratio, mask),
        "raw_token_ratio_max": Maximum.of(ratio, mask),
        "raw_token_ratio_min": Minimum.of(ratio, mask),
    }


def token_truncate(log_ratio: Tensor, mask: Tensor, *, cap: float = 2.0) -> Correction:
    """min(w_t, cap): truncated importance sampling per token."""
    return _truncate(bounded_ratio(log_ratio), mask, cap)


def sequence_truncate(log_ratio: Tensor, mask: Tensor, *, cap: float = 2.0) -> Correction:
    """min(Π w, cap) for every token of the row."""
    return _truncate(_sequence_product(log_ratio, mask), mask, cap)


def token_mask(
    log_ratio: Tensor, mask: Tensor, *, low: float = 0.5, high: float = 5.0
) -> Correction:
    """IcePop: w_t inside [low, high], 0 outside."""
    ratio = bounded_ratio(log_ratio)
    is_inside = _inside(ratio, low, high)
    every_row = torch.ones_like(mask[:, 0])
    return Correction(ratio * is_inside, ~is_inside, every_row)


def sequence_mask(
    log_ratio: Tensor, mask: Tensor, *, low: float = 0.0, high: float = math.inf
) -> Correction:
    """Π w for every token of the row if it is inside [low, high], else 0."""
    product = _sequence_product(log_ratio, mask)
    return _reject_rows(product, _inside(product, low, high))


def geometric_mask(
    log_ratio: Tensor, mask: Tensor, *, low: float = 0.99, high: float = 1.01
) -> Correction:
    """1 if the row's geometric mean of w is inside [low, high], else 0."""
    mean = geometric_mean(log_ratio, mask)
    return _reject_rows(torch.ones_like(mean), _inside(mean, low, high))


def geometric_mask_token_weight(
    log_ratio: Tensor, mask: Tensor, *, low: float = 0.99, high: float = 1.01
) -> Correction:
    """w_t if the row's geometric mean of w is inside [low, high], else 0."""
    is_inside = _inside(geometric_mean(log_ratio, mask), low, high)
    return _reject_rows(bounded_ratio(log_ratio), is_inside)


CORRECTIONS: dict[str, Callable[..., Correction]] = {
    "token_truncate": token_truncate,
    "sequence_truncate": sequence_truncate,
    "token_mask": token_mask,
    "sequence_mask": sequence_mask,
    "geometric_mask": geometric_mask,
    "geometric_mask_token_weight": geometric_mask_token_weight,
}
"""Corrections by name: functions of log w (B, A), 0 where masked, and the bool mask (B, A)."""


def _sequence_product(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Π w of each row, (B, 1)."""
    return bounded_ratio(masked_sum(log_ratio, mask, dim=1)).unsqueeze(1)


def _inside(values: Tensor, low: float, high: float) -> Tensor:
    return (values >= low) & (values <= high)


def _truncate(ratio: Tensor, mask: Tensor, cap: float) -> Correction:
    return Correction(ratio.clamp(max=cap), ratio > cap, torch.ones_like(mask[:, 0]))


def _reject_rows(weights: Tensor, is_inside: Tensor) -> Correction:
    """`weights` (B, 1) or (B, A), without the rows that are not inside, (B, 1)."""
    return Correction(weights * is_inside, ~is_inside, is_inside.squeeze(1))
