"""The learners' objectives on a micro-batch of experience."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.aggregation import Denominators
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import Maximum, Mean, Metrics
from lightrft_ray.trainer.policy_losses import KLPenalty, policy_loss
from lightrft_ray.trainer.token_losses import ppo
from lightrft_ray.trainer.value_loss import value_loss

_AGGREGATION = "token-mean"


def policy_objective(
    log_probs: Tensor,
    entropy: Tensor,
    experience: ExperienceVL,
    algorithm: AlgorithmConfig,
    *,
    denominators: Denominators,
    kl_coef: float,
) -> tuple[Tensor, Metrics]:
    """The clipped policy loss with the KL term where it is part of the loss, and its metrics.

    `log_probs` (B, A) carries the gradient, `entropy` (B, A) is a metric. Denominators are those
    of the whole optimizer step, so that the losses of micro-batches and ranks add up.
    """
    mask = _required(experience.action_mask, "action_mask")
    low, high = algorithm.clip_bounds
    result = policy_loss(
        log_probs,
        experience.action_log_probs,
        _required(experience.advantages, "advantages"),
        mask,
        token_loss=partial(ppo, eps_low=1 - low, eps_high=high - 1),
        aggregation=_AGGREGATION,
        denominators=denominators,
        kl_penalty=_kl_penalty(experience, algorithm, kl_coef),
    )
    gap = (log_probs.detach() - experience.action_log_probs).abs()
    own: Metrics = {
        "loss": _token_mean(result.loss, mask, denominators),
        "entropy": Mean.of(entropy, mask),
        "log_prob_gap_max": Maximum.of(gap, mask),
    }
    return result.loss, result.metrics | own


def value_objective(
    values: Tensor,
    experience: ExperienceVL,
    algorithm: AlgorithmConfig,
    *,
    denominators: Denominators,
) -> tuple[Tensor, Metrics]:
    """The clipped value loss and its metrics; `values` (B, A) carries the gradient."""
    mask = _required(experience.action_mask, "action_mask")
    result = value_loss(
        values,
        experience.values,
        _required(experience.returns, "returns"),
        mask,
        clip=algorithm.value_clip,
        aggregation=_AGGREGATION,
        denominators=denominators,
    )
    return result.loss, result.metrics | {"loss": _token_mean(result.loss, mask, denominators)}


def _token_mean(loss: Tensor, mask: Tensor, denominators: Denominators) -> Mean:
    """The loss as a metric that merges: a micro-batch's share times the global token count."""
    return Mean(loss.detach() * denominators.n_tokens, mask.sum())


def _kl_penalty(
    experience: ExperienceVL, algorithm: AlgorithmConfig, kl_coef: float
) -> KLPenalty | None:
    if experience.base_action_log_probs is None or not algorithm.use_kl_loss:
        return None
    return KLPenalty(
        ref_log_probs=experience.base_action_log_probs,
        coef=kl_coef,
        estimator=algorithm.kl_estimator,
    )


def _required(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"experience.{name} is missing")
    return tensor
