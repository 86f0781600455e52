"""Samples scored by models in this process."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lightrft_ray.config import AlgorithmConfig, UserError
from lightrft_ray.models.policy_passes import evaluating
from lightrft_ray.trainer.assemble import Scores, reference_kl
from lightrft_ray.trainer.batch_media import MEDIA_INPUTS, model_inputs
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL
from lightrft_ray.trainer.masked import masked_mean
from lightrft_ray.trainer.reward_sources import RewardSource
from lightrft_ray.trainer.rollout_advantages import PROCESS_REWARDS

# What samples know beyond tensors, kept in the experience's info; an entry a sample.
_KEPT = (
    "prompts",
    "references",
    "labels",
    "output_texts",
    "image_num",
    "video_num",
    MEDIA_INPUTS,
)


@dataclass(frozen=True)
class LocalModels:
    """Who scores: the critic and the reference may be missing."""

    actor: nn.Module
    critic: nn.Module | None
    reference: nn.Module | None
    rewards: RewardSource | None


@torch.no_grad()
def score_samples(
    samples: SamplesVL, models: LocalModels, algorithm: AlgorithmConfig
) -> ExperienceVL:
    """Experience of checked, batched samples, but for advantages and returns."""
    mask = samples.action_mask
    if mask is None:
        raise ValueError("action_mask is missing: batched samples need it")
    if models.rewards is None:
        raise UserError("no rewards: give one of reward_model, remote_rm_url and reward_fn")
    rewards = models.rewards(samples)
    scores = _scores(samples, models, rewards.values)
    kl = reference_kl(scores, mask, algorithm)
    return ExperienceVL(
        sequences=samples.sequences,
        pixel_values=samples.pixel_values,
        image_grid_thws=samples.image_grid_thws,
        raw_images=samples.raw_images,
        pixel_values_videos=samples.pixel_values_videos,
        video_grid_thws=samples.video_grid_thws,
        action_log_probs=scores.action_log_probs,
        base_action_log_probs=scores.base_action_log_probs,  # type: ignore[arg-type]
        values=scores.values,  # type: ignore[arg-type]
        attention_mask=samples.attention_mask,
        action_mask=mask,
        info=_info(samples, mask, scores.rewards, masked_mean(kl, mask, dim=1))
        | ({} if rewards.process is None else {PROCESS_REWARDS: rewards.process}),
        kl=kl,
    )


def _scores(samples: SamplesVL, models: LocalModels, rewards: Tensor) -> Scores:
    arguments = (samples.sequences, samples.num_actions, samples.attention_mask)
    media = model_inputs(samples)
    with evaluating(models.actor, models.critic, models.reference):
        log_probs = models.actor(*arguments, **media)
        base, values = (
            None if model is None else model(*arguments, **media)
            for model in (models.reference, models.critic)
        )
    device = samples.sequences.device
    return Scores(
        rewards=rewards.to(device),
        group_ids=torch.arange(len(samples.sequences), device=device),
        action_log_probs=log_probs,
        base_action_log_probs=base,
        values=values,
    )


def _info(samples: SamplesVL, mask: Tensor, rewards: Tensor, kl: Tensor) -> dict[str, object]:
    real = samples.attention_mask
    total = samples.total_length if real is None else real.sum(dim=1)
    info: dict[str, object] = {
        "reward": rewards,
        "kl": kl,
        "response_length": samples.response_length,
        "total_length": total,
        "num_actions": mask.sum(dim=1),
    }
    if samples.response_length is None:
        info["response_length"] = mask.sum(dim=1)
    kept = {name: getattr(samples, name) for name in _KEPT}
    return info | {name: list(value) for name, value in kept.items() if value is not None}
