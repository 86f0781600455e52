"""What a policy loss reads, and what it gives back, per token."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from lightrft_ray.trainer.log_ratio import bounded_ratio, masked_log_ratio
from lightrft_ray.trainer.masked import masked_mean, zero_masked


@dataclass(frozen=True)
class PolicyTokens:
    """Actions of a batch, all (B, A), with zeros where `mask` (bool) says there is none.

    Only `log_probs` and what derives from them carries a gradient.
    """

    log_probs: Tensor
    log_ratio: Tensor
    advantages: Tensor
    mask: Tensor

    @classmethod
    def of(
        cls, log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, action_mask: Tensor
    ) -> PolicyTokens:
        """From log-probs of the current and the behaviour policy, (B, A), in float32 or better."""
        mask = action_mask.bool()
        return cls(
            log_probs=zero_masked(log_probs, mask),
            log_ratio=masked_log_ratio(log_probs, old_log_probs.detach(), mask),
            advantages=zero_masked(advantages.detach(), mask),
            mask=mask,
        )

    @cached_property
    def ratio(self) -> Tensor:
        """ρ = π / π_old per token, (B, A)."""
        return bounded_ratio(self.log_ratio)

    @cached_property
    def sequence_ratio(self) -> Tensor:
        """Geometric mean of a row's ρ, (B, 1)."""
        return geometric_mean(self.log_ratio, self.mask)


@dataclass(frozen=True)
class TokenLoss:
    """Loss per token, (B, A), and which tokens a bound acted on, by metric name.

    `clipped` are (B, A) bool and become fractions of tokens, `clipped_rows` are (B,) bool and
    become fractions of the rows that have actions.
    """

    loss: Tensor
    clipped: dict[str, Tensor] = field(default_factory=dict)
    clipped_rows: dict[str, Tensor] = field(default_factory=dict)


def clipped_against_advantage(
    ratio: Tensor, advantages: Tensor, *, low: float, high: float
) -> dict[str, Tensor]:
    """Tokens outside [low, high] on the side where their gradient vanishes."""
    return {
        "clip_frac_low": (ratio < low) & (advantages < 0),
        "clip_frac_high": (ratio > high) & (advantages > 0),
    }


def geometric_mean(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """exp of the mean of a row's `log_ratio`, (B, 1)."""
    return bounded_ratio(masked_mean(log_ratio, mask, dim=1)).unsqueeze(1)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """PPO's min(ρA, clip(ρ, low, high)·A), (B, A)."""
    return torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
