"""Rewards of a whole rollout, shaped, and the samples that carry no signal left out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightrft_ray.trainer.experience_rows import join_rows, split_experience
from lightrft_ray.trainer.experience_settings import ExperienceSettings
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.selection import informative_groups
from lightrft_ray.trainer.shaping import RunningRewardNormalizer, clip_rewards, overlong_penalty


def shaped_rewards(
    rewards: Tensor,
    response_lengths: Tensor,
    group_ids: Tensor,
    settings: ExperienceSettings,
    normalizer: RunningRewardNormalizer,
    *,
    max_length: int,
) -> Tensor:
    """Rewards (B,) after shaping by length, normalisation, clipping and the overlong penalty.

    Each where it is set; NaN stays. `normalizer` takes the rewards in if they are normalised.
    """
    rewards = settings.length_rewards.apply(
        rewards, response_lengths, group_ids, max_length=max_length
    )
    if settings.reward_running_norm:
        normalizer.update(rewards[rewards.isfinite()])
        rewards = normalizer.scale(rewards)
    if settings.reward_clip_range is not None:
        rewards, _ = clip_rewards(rewards, *settings.reward_clip_range)
    if settings.overlong_buffer_len > 0:
        rewards = rewards + overlong_penalty(
            response_lengths,
            max_length=max_length,
            buffer_length=settings.overlong_buffer_len,
            factor=settings.overlong_buffer_penalty_factor,
        )
    return rewards


def group_ids_of(n_samples: int, n_samples_per_prompt: int, device: torch.device) -> Tensor:
    """(B,) the prompt of each sample of a group-major rollout; ValueError for a cut group."""
    if n_samples % n_samples_per_prompt:
        raise ValueError(
            f"experiences hold {n_samples} samples, no multiple of n_samples_per_prompt "
            f"{n_samples_per_prompt}: a group is cut"
        )
    return torch.arange(n_samples, device=device) // n_samples_per_prompt


def informative_rows(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """(B,) bool: samples of groups whose rewards, as far as there are any, differ."""
    scored = rewards.isfinite()
    kept = informative_groups(rewards[scored], group_ids[scored], keep_singletons=False)
    return torch.isin(group_ids, kept.group_ids)


def select_samples(
    experiences: Sequence[ExperienceVL], keep: Tensor, pad_token_id: int
) -> list[ExperienceVL]:
    """The batches with the samples of `keep` (ΣB,) alone; those without any are left out."""
    sizes = [len(experience.sequences) for experience in experiences]
    selected = []
    for experience, kept in zip(experiences, keep.split(sizes), strict=True):
        if kept.all():
            selected.append(experience)
        elif kept.any():
            rows = split_experience(experience)
            chosen = [rows[index] for index in kept.nonzero().flatten().tolist()]
            selected.append(join_rows(chosen, pad_token_id))
    return selected
