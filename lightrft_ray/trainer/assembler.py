"""What making experience remembers from batch to batch: KL coefficient and reward statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lightrft_ray.config import RunConfig
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL, required_mask
from lightrft_ray.trainer.kl import kl_controller
from lightrft_ray.trainer.masked import masked_mean
from lightrft_ray.trainer.metric_sums import Metrics
from lightrft_ray.trainer.reward_shaper import RewardShaper
from lightrft_ray.trainer.token_weights import weigh_tokens


@dataclass(frozen=True)
class Assembled:
    """Experience of a batch, and metrics of its shaping and weighting."""

    experience: ExperienceVL
    metrics: Metrics


class Assembler:
    """Makes the experience of training batches, each whole and in order."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._kl = kl_controller(config.algorithm)
        self._shaper = RewardShaper(config.reward, config.rollout.generate_max_len)

    @property
    def kl_coef(self) -> float:
        """The present weight of the KL."""
        return self._kl.value

    def assemble(self, samples: SamplesVL, scores: Scores) -> Assembled:
        """The experience of batched samples; see `assemble_experience`."""
        algorithm = self._config.algorithm
        if not self._config.reward.mask_truncated:
            scores = replace(scores, is_truncated=None)
        # A sample that is masked has no part in any statistics.
        rewards = scores.rewards.where(scores.is_used, math.nan)
        shaped = self._shaper.shape(rewards, samples.response_length, scores.group_ids)
        scores = replace(scores, shaped_rewards=shaped.rewards)
        experience = assemble_experience(samples, scores, algorithm, kl_coef=self.kl_coef)
        if scores.rollout_log_probs is None:
            return Assembled(experience, shaped.metrics)
        experience, weighting = weigh_tokens(experience, scores.rollout_log_probs, algorithm)
        return Assembled(experience, shaped.metrics | weighting)

    def steer_kl(self, experience: ExperienceVL) -> None:
        """Correct the KL's weight by a batch that was trained on."""
        mask = required_mask(experience)
        if experience.kl is not None and mask.any():
            self._kl.update(masked_mean(experience.kl, mask).item(), int(mask.any(dim=1).sum()))

    def state_dict(self) -> dict[str, dict[str, float]]:
        """What a checkpoint must keep."""
        return {"kl": self._kl.state_dict(), "rewards": self._shaper.state_dict()}

    def load_state_dict(self, state: dict[str, dict[str, float]]) -> None:
        """Continues from `state_dict()`."""
        self._kl.load_state_dict(state["kl"])
        self._shaper.load_state_dict(state["rewards"])
