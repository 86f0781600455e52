"""The policy loss of a (micro-)batch: a token loss by name, weighted, aggregated and measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.trainer.aggregation import Denominators, aggregate
from lightrft_ray.trainer.kl import kl_estimate
from lightrft_ray.trainer.log_ratio import ratio_excess
from lightrft_ray.trainer.masked import zero_masked
from lightrft_ray.trainer.metric_sums import (
    EffectiveSampleSize,
    Maximum,
    Mean,
    Metrics,
    Minimum,
)
from lightrft_ray.trainer.policy_tokens import PolicyTokens, TokenLoss
from lightrft_ray.trainer.sequence_losses import gmpo, gspo, gspo_token
from lightrft_ray.trainer.token_losses import cispo, cpgd, ppo, ppo_dual_clip, reinforce, sapo

POLICY_LOSSES: dict[str, Callable[..., TokenLoss]] = {
    "ppo": ppo,
    "ppo_dual_clip": ppo_dual_clip,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "gmpo": gmpo,
    "cispo": cispo,
    "cpgd": cpgd,
    "sapo": sapo,
    "reinforce": reinforce,
}
"""Token losses by name; bind their parameters with `functools.partial`."""


@dataclass(frozen=True)
class KLPenalty:
    """coef · KL(policy ‖ reference) in the loss; `ref_log_probs` is (B, A).

    The clamps keep one far-off token from overflowing or from drowning all others; see
    `kl.kl_estimate`.
    """

    ref_log_probs: Tensor
    coef: float
    estimator: str = "k3"
    input_clamp: float | None = 20.0
    output_clamp: float | None = 10.0


@dataclass(frozen=True)
class PolicyLoss:
    """`loss` is the scalar to differentiate, `token_loss` (B, A) what it is a weighted sum of."""

    loss: Tensor
    token_loss: Tensor
    metrics: Metrics


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    token_loss: Callable[[PolicyTokens], TokenLoss],
    aggregation: str,
    denominators: Denominators,
    group_tokens: Tensor | None = None,
    token_weights: Tensor | None = None,
    kl_penalty: KLPenalty | None = None,
) -> PolicyLoss:
    """Σ weight_t · (token_weights_t · token_loss_t + coef · KL_t), with gradients by `log_probs`.

    All tensors are (B, A), in any float dtype; the result is float32 or better. `old_log_probs`
    are those of the behaviour policy. `token_loss` is one of POLICY_LOSSES with its parameters
    bound. `aggregation`, `denominators` (of the *global* batch) and `group_tokens` are those of
    `aggregation.aggregate`. `token_weights` are constants, such as importance weights or a 0/1
    choice of tokens; they leave the denominators as they are.

    Metrics are over tokens: fractions clipped, `approx_kl_k1` = mean(−log ρ) and `approx_kl_k3`
    = mean(ρ − 1 − log ρ) of KL(behaviour ‖ policy), the ratio's mean and extremes, and its
    effective sample size `ess`; with a penalty also the mean `ref_kl`.
    """
    tokens = PolicyTokens.of(log_probs, old_log_probs, advantages, action_mask)
    result = token_loss(tokens)
    losses, metrics = result.loss, _ratio_metrics(tokens) | _clip_metrics(result, tokens.mask)
    if token_weights is not None:
        losses = losses * zero_masked(token_weights.detach(), tokens.mask)
    if kl_penalty is not None:
        kl = _reference_kl(log_probs, tokens.mask, kl_penalty)
        losses = losses + kl_penalty.coef * kl
        metrics["ref_kl"] = Mean.of(kl, tokens.mask)
    losses = zero_masked(losses, tokens.mask)
    loss = aggregate(
        losses,
        tokens.mask,
        mode=aggregation,
        denominators=denominators,
        group_tokens=group_tokens,
    )
    return PolicyLoss(loss, losses, metrics)


def _reference_kl(log_probs: Tensor, mask: Tensor, penalty: KLPenalty) -> Tensor:
    return kl_estimate(
        log_probs,
        penalty.ref_log_probs.detach(),
        mask,
        estimator=penalty.estimator,
        input_clamp=penalty.input_clamp,
        output_clamp=penalty.output_clamp,
    )


@torch.no_grad()
def _ratio_metrics(tokens: PolicyTokens) -> Metrics:
    log_ratio, ratio, mask = tokens.log_ratio, tokens.ratio, tokens.mask
    return {
        "approx_kl_k1": Mean.of(-log_ratio, mask),
        "approx_kl_k3": Mean.of(ratio_excess(log_ratio), mask),
        "ratio_mean": Mean.of(ratio, mask),
        "ratio_max": Maximum.of(ratio, mask),
        "ratio_min": Minimum.of(ratio, mask),
        "ess": EffectiveSampleSize.of(ratio, mask),
    }


def _clip_metrics(result: TokenLoss, mask: Tensor) -> Metrics:
    tokens: Metrics = {name: Mean.of(hit, mask) for name, hit in result.clipped.items()}
    is_used = mask.any(dim=1)
    rows: Metrics = {name: Mean.of(hit, is_used) for name, hit in result.clipped_rows.items()}
    return tokens | rows
