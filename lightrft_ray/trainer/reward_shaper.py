"""From what the reward function said to the rewards that advantages are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.config import RewardConfig
from lightrft_ray.trainer.length_rewards import LengthShaping
from lightrft_ray.trainer.metric_sums import Mean, Metrics
from lightrft_ray.trainer.shaping import RunningRewardNormalizer, clip_rewards, overlong_penalty


@dataclass(frozen=True)
class ShapedRewards:
    """Rewards (B,), NaN where scoring failed, and metrics of the shaping where there is any."""

    rewards: Tensor
    metrics: Metrics


class RewardShaper:
    """Shapes training rewards by the configuration.

    In order: length shaping, running norm, clip, overlong penalty.

    Call `shape` once for each training batch, as it feeds the running norm; never in evaluation.
    """

    def __init__(self, reward: RewardConfig, max_length: int) -> None:
        self._reward = reward
        self._max_length = max_length
        self._by_length = LengthShaping.of(reward)
        self._normalizer = RunningRewardNormalizer()

    def shape(self, rewards: Tensor, lengths: Tensor, group_ids: Tensor) -> ShapedRewards:
        """All arguments are (B,), `lengths` in tokens; failed samples feed no statistics."""
        is_scored = rewards.isfinite()
        metrics: Metrics = {}
        by_length = self._by_length.apply(rewards, lengths, group_ids, max_length=self._max_length)
        if self._reward.length_shaping != "none":
            change = (by_length - rewards)[is_scored]
            metrics["length_shaping"] = Mean.of(change, torch.ones_like(change))
        shaped = self._normalized(by_length[is_scored])
        if self._reward.reward_clip_range is not None:
            low, high = self._reward.reward_clip_range
            metrics["reward_clipped"] = Mean.of(
                (shaped < low) | (shaped > high), torch.ones_like(shaped)
            )
            shaped, _ = clip_rewards(shaped, low, high)
        if self._reward.overlong_buffer_len is not None:
            penalty = self._penalty(lengths[is_scored], self._reward.overlong_buffer_len)
            metrics["overlong_penalty"] = Mean.of(penalty, torch.ones_like(penalty))
            shaped = shaped + penalty
        whole = rewards.clone()
        whole[is_scored] = shaped
        return ShapedRewards(whole, metrics)

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must keep."""
        return self._normalizer.state_dict()

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continues from `state_dict()`."""
        self._normalizer.load_state_dict(state)

    def _normalized(self, rewards: Tensor) -> Tensor:
        if self._reward.reward_running_norm == "none":
            return rewards
        self._normalizer.update(rewards)
        if self._reward.reward_running_norm == "scale":
            return self._normalizer.scale(rewards)
        return self._normalizer.standardize(rewards)

    def _penalty(self, lengths: Tensor, buffer_length: int) -> Tensor:
        factor = self._reward.overlong_penalty_factor
        return overlong_penalty(
            lengths,
            max_length=self._max_length,
            buffer_length=buffer_length,
            factor=1.0 if factor is None else factor,
        )
