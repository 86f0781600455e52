"""The learners' objectives on a micro-batch of experience."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.aggregation import Denominators, aggregate
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask
from lightrft_ray.trainer.metric_sums import Mean, Metrics
from lightrft_ray.trainer.policy_losses import POLICY_LOSSES, KLPenalty, policy_loss
from lightrft_ray.trainer.policy_tokens import PolicyTokens, TokenLoss
from lightrft_ray.trainer.value_loss import value_loss

_CLIP = {"eps_clip": "eps_low", "eps_clip_high": "eps_high"}

LOSS_PARAMETERS: dict[str, dict[str, str]] = {
    "ppo": _CLIP,
    "ppo_dual_clip": {**_CLIP, "dual_clip": "dual_clip"},
    "gspo": _CLIP,
    "gspo_token": _CLIP,
    "gmpo": {"eps_clip": "log_eps_low", "eps_clip_high": "log_eps_high"},
    "cispo": _CLIP,
    "cpgd": {**_CLIP, "cpgd_drift_coef": "drift_coef", "cpgd_drift_cap": "drift_cap"},
    "sapo": {"sapo_tau_pos": "tau_pos", "sapo_tau_neg": "tau_neg"},
    "reinforce": {},
}
"""Of each policy loss: settings of the configuration, and the parameters that they set."""


def bound_token_loss(algorithm: AlgorithmConfig) -> Callable[[PolicyTokens], TokenLoss]:
    """The configured token loss; a parameter whose setting is null has the loss's own default."""
    parameters = LOSS_PARAMETERS[algorithm.policy_loss]
    values = {setting: getattr(algorithm, setting) for setting in parameters}
    if "eps_clip_high" in values and values["eps_clip_high"] is None:
        values["eps_clip_high"] = algorithm.eps_clip
    given = {parameters[name]: value for name, value in values.items() if value is not None}
    return partial(POLICY_LOSSES[algorithm.policy_loss], **given)


def policy_objective(
    log_probs: Tensor,
    entropy: Tensor,
    experience: ExperienceVL,
    algorithm: AlgorithmConfig,
    *,
    denominators: Denominators,
    kl_coef: float,
) -> tuple[Tensor, Metrics]:
    """The policy loss with the KL term and the entropy bonus where it has them, and its metrics.

    `log_probs` (B, A) and, for a bonus, `entropy` (B, A) carry the gradient. Denominators are those
    of the whole optimizer step, so that the losses of micro-batches and ranks add up. Tokens are
    weighted by `experience.info["token_weights"]` where there are any.
    """
    mask = required_mask(experience)
    result = policy_loss(
        log_probs,
        experience.action_log_probs,
        _required(experience.advantages, "advantages"),
        mask,
        token_loss=bound_token_loss(algorithm),
        aggregation=algorithm.loss_aggregation,
        denominators=denominators,
        token_weights=(experience.info or {}).get("token_weights"),
        kl_penalty=_kl_penalty(experience, algorithm, kl_coef),
    )
    loss = result.loss
    if algorithm.entropy_coef > 0:
        bonus = aggregate(entropy, mask, mode=algorithm.loss_aggregation, denominators=denominators)
        loss = loss - algorithm.entropy_coef * bonus
    own: Metrics = {
        "loss": _loss_metric(loss, mask, denominators),
        "entropy": Mean.of(entropy, mask),
    }
    return loss, result.metrics | own


def value_objective(
    values: Tensor,
    experience: ExperienceVL,
    algorithm: AlgorithmConfig,
    *,
    denominators: Denominators,
) -> tuple[Tensor, Metrics]:
    """The clipped value loss and its metrics; `values` (B, A) carries the gradient."""
    mask = required_mask(experience)
    result = value_loss(
        values,
        experience.values,
        _required(experience.returns, "returns"),
        mask,
        clip=algorithm.value_clip,
        aggregation="token-mean",
        denominators=denominators,
    )
    return result.loss, result.metrics | {"loss": _loss_metric(result.loss, mask, denominators)}


def _loss_metric(loss: Tensor, mask: Tensor, denominators: Denominators) -> Mean:
    """The loss as a metric that merges: over optimizer steps, weighted by their tokens.

    However it is aggregated, the losses of a step's micro-batches and ranks add up to the step's.
    """
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
