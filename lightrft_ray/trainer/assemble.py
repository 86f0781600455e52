"""From samples and their scores to experience: KL, shaped rewards, advantages and returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.advantages import (
    generalized_advantage_estimation,
    group_normalized,
    spread_over_actions,
)
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL
from lightrft_ray.trainer.kl import kl_estimate, token_rewards
from lightrft_ray.trainer.masked import masked_mean, masked_whiten

_KL_INPUT_CLAMP, _KL_OUTPUT_CLAMP = 20.0, 10.0  # one far-off token must not drown all others


@dataclass(frozen=True)
class Scores:
    """What the models and the reward function said of a batch of B samples.

    `rewards` (B,) is NaN where scoring failed: such a sample is masked out, never scored 0.
    `group_ids` (B,) tells which samples share a prompt. Log-probs and values are (B, A).
    """

    rewards: Tensor
    group_ids: Tensor
    action_log_probs: Tensor
    base_action_log_probs: Tensor | None = None
    values: Tensor | None = None


def assemble_experience(
    samples: SamplesVL, scores: Scores, algorithm: AlgorithmConfig, *, kl_coef: float
) -> ExperienceVL:
    """Experience of a batched `samples`, in float32.

    `info` holds, each (B,): `reward` (NaN where it failed), `kl` (mean of the response),
    `response_length`, `total_length`, and `group_ids`.
    """
    if samples.action_mask is None:
        raise ValueError("assemble_experience takes the batched layout: action_mask is None")
    scored = scores.rewards.isfinite()
    mask = samples.action_mask & scored[:, None]
    rewards = scores.rewards.where(scored, 0.0)
    kl = reference_kl(scores, mask, algorithm)
    in_reward = 0.0 if algorithm.use_kl_loss else kl_coef
    advantages, returns = _advantages(scores, rewards, kl, mask, algorithm, kl_coef=in_reward)
    if algorithm.whitens_advantages:
        advantages = masked_whiten(advantages, mask)
    return ExperienceVL(
        sequences=samples.sequences,
        image_grid_thws=samples.image_grid_thws,
        video_grid_thws=samples.video_grid_thws,
        action_log_probs=scores.action_log_probs,
        base_action_log_probs=scores.base_action_log_probs,  # type: ignore[arg-type]
        values=scores.values,  # type: ignore[arg-type]
        returns=returns,
        advantages=advantages,
        attention_mask=samples.attention_mask,
        action_mask=mask,  # type: ignore[arg-type]
        kl=kl,
        info={
            "reward": scores.rewards,
            "kl": masked_mean(kl, mask, dim=1),
            "response_length": samples.response_length,
            "total_length": samples.total_length,
            "group_ids": scores.group_ids,
        },
    )


def reference_kl(scores: Scores, mask: Tensor, algorithm: AlgorithmConfig) -> Tensor:
    """Estimates of the KL to the reference, (B, A); 0 where masked, and without a reference."""
    if scores.base_action_log_probs is None:
        return torch.zeros_like(scores.action_log_probs)
    return kl_estimate(
        scores.action_log_probs,
        scores.base_action_log_probs,
        mask,
        estimator=algorithm.kl_estimator,
        input_clamp=_KL_INPUT_CLAMP,
        output_clamp=_KL_OUTPUT_CLAMP,
    )


def _advantages(
    scores: Scores,
    rewards: Tensor,
    kl: Tensor,
    mask: Tensor,
    algorithm: AlgorithmConfig,
    *,
    kl_coef: float,
) -> tuple[Tensor, Tensor | None]:
    """(advantages, returns or None), (B, A); the one place where estimators are chosen."""
    if algorithm.advantage_estimator == "gae":
        if scores.values is None:
            raise ValueError("the estimator gae needs a critic's values")
        token_level = token_rewards(rewards, kl, mask, kl_coef=kl_coef)
        return generalized_advantage_estimation(
            scores.values, token_level, mask, gamma=algorithm.gamma, lambd=algorithm.lambd
        )
    # A KL in the reward counts with its sum over the response, as its tokens' rewards would.
    totals = rewards - kl_coef * kl.sum(dim=1)
    return spread_over_actions(_group_advantages(totals, scores.group_ids, mask), mask), None


def _group_advantages(totals: Tensor, group_ids: Tensor, mask: Tensor) -> Tensor:
    """Group-normalised totals (B,) of the samples that have actions; 0 for the others."""
    used = mask.any(dim=1)
    advantages = torch.zeros_like(totals)
    advantages[used] = group_normalized(totals[used], group_ids[used])
    return advantages
