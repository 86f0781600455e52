"""Rewards that depend on how long a response is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.config import RewardConfig
from lightrft_ray.trainer.groups import Groups
from lightrft_ray.trainer.masked import promote_half


def linear_length_penalty(lengths: Tensor, *, max_length: int, factor: float = 1.0) -> Tensor:
    """−factor · length / max_length, (B,) float32, to be added to the rewards.

    `lengths` are tokens of the responses, (B,). This is the penalty of L1, 2503.04697, with a
    target of no tokens.
    """
    return -factor * lengths / max_length


def cosine_length_rewards(
    is_correct: Tensor,
    lengths: Tensor,
    *,
    max_length: int,
    correct: tuple[float, float] = (2.0, 1.0),
    wrong: tuple[float, float] = (-10.0, 0.0),
    exceeded: float = -10.0,
) -> Tensor:
    """Rewards in place of right and wrong: the cosine of 2502.03373, (B,) float32.

    From the first of `correct`, at no tokens, to the second, at `max_length`, along half a cosine;
    likewise `wrong`. Responses of `max_length` tokens get `exceeded`. `is_correct` (B,) is bool.
    """
    falling = (1 + torch.cos(lengths * (math.pi / max_length))) / 2  # 1 at no tokens, 0 at the end
    first, last = (
        torch.where(is_correct, right, false) for right, false in zip(correct, wrong, strict=True)
    )
    rewards = last + (first - last) * falling
    return torch.where(lengths >= max_length, exceeded, rewards)


def kimi_length_rewards(is_correct: Tensor, lengths: Tensor, group_ids: Tensor) -> Tensor:
    """Length rewards of Kimi k1.5, 2501.12599, (B,) float32, to be added.

    λ = 1/2 − (length − shortest) / (longest − shortest) among the samples of a prompt; min(0, λ)
    for wrong ones; 0 where all are of one length. All arguments are (B,).
    """
    groups = Groups.of(group_ids)
    shortest, longest = (
        torch.zeros_like(groups.size).scatter_reduce(
            0, groups.of_row, lengths, extreme, include_self=False
        )[groups.of_row]
        for extreme in ("amin", "amax")
    )
    spread = longest - shortest
    reward = 0.5 - (lengths - shortest) / spread.clamp(min=1)
    reward = torch.where(is_correct, reward, reward.clamp(max=0))
    return torch.where(spread > 0, reward, 0.0)


@dataclass(frozen=True)
class LengthShaping:
    """The length shaping of a run: the settings of `RewardConfig`, with their defaults filled in.

    Responses count as correct from a reward of `threshold` on.
    """

    kind: str = "none"
    factor: float = 1.0
    correct: tuple[float, float] = (2.0, 1.0)
    wrong: tuple[float, float] = (-10.0, 0.0)
    exceeded: float = -10.0
    threshold: float = 0.5

    @staticmethod
    def of(reward: RewardConfig) -> LengthShaping:
        """From the configuration."""
        given = {
            "factor": reward.length_shaping_factor,
            "correct": reward.cosine_correct,
            "wrong": reward.cosine_wrong,
            "exceeded": reward.cosine_exceeded,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return LengthShaping(
            kind=reward.length_shaping,
            threshold=reward.correct_from,
            **chosen,  # type: ignore[arg-type]
        )

    def apply(
        self, rewards: Tensor, lengths: Tensor, group_ids: Tensor, *, max_length: int
    ) -> Tensor:
        """Shaped rewards (B,); samples whose reward is not finite keep it and do not count."""
        if self.kind == "none":
            return rewards
        scored = rewards.isfinite()
        shaped = promote_half(rewards).clone()
        shaped[scored] = self._shaped(
            shaped[scored], lengths[scored], group_ids[scored], max_length
        )
        return shaped

    def _shaped(
        self, rewards: Tensor, lengths: Tensor, group_ids: Tensor, max_length: int
    ) -> Tensor:
        if self.kind == "linear":
            return rewards + linear_length_penalty(
                lengths, max_length=max_length, factor=self.factor
            )
        is_correct = rewards >= self.threshold
        if self.kind == "kimi":
            return rewards + self.factor * kimi_length_rewards(is_correct, lengths, group_ids)
        return cosine_length_rewards(
            is_correct,
            lengths,
            max_length=max_length,
            correct=self.correct,
            wrong=self.wrong,
            exceeded=self.exceeded,
        )
