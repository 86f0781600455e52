"""Policy losses whose importance ratio is shared by a whole response."""

from __future__ import annotations

import torch
from torch import Tensor

from lightrft_ray.trainer.policy_tokens import (
    PolicyTokens,
    TokenLoss,
    clipped_against_advantage,
    clipped_surrogate,
    geometric_mean,
)


def gspo(tokens: PolicyTokens, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> TokenLoss:
    """PPO's loss with s = exp(mean_t log ρ_t) in place of ρ: Zheng et al. 2025, 2507.18071.

    Advantages are meant to be constant per row. The narrow default bounds are the paper's.
    """
    return _clip_sequences(tokens, tokens.sequence_ratio, eps_low, eps_high)


def gspo_token(tokens: PolicyTokens, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> TokenLoss:
    """As `gspo`, but each token's gradient goes through its own log-prob (eq. 13-15).

    The ratio is stopgrad(s)·π / stopgrad(π), of value s, so that advantages may vary in a row.
    """
    own_gradient = (tokens.log_probs - tokens.log_probs.detach()).exp()
    ratio = tokens.sequence_ratio.detach() * own_gradient
    return _clip_sequences(tokens, ratio, eps_low, eps_high)


def gmpo(tokens: PolicyTokens, *, log_eps_low: float = 0.4, log_eps_high: float = 0.4) -> TokenLoss:
    """−A·exp(mean_t ℓ_t), ℓ = log ρ clipped on one side: Zhao et al. 2025, 2507.20673.

    ℓ is limited to `log_eps_high` above where A > 0 and to −`log_eps_low` below where A < 0.
    The bounds are those of log ρ; advantages are meant to be constant per row.
    """
    log_ratio, advantages = tokens.log_ratio, tokens.advantages
    bounded = torch.where(advantages > 0, log_ratio.clamp(max=log_eps_high), log_ratio)
    bounded = torch.where(advantages < 0, log_ratio.clamp(min=-log_eps_low), bounded)
    clipped = clipped_against_advantage(log_ratio, advantages, low=-log_eps_low, high=log_eps_high)
    return TokenLoss(-advantages * geometric_mean(bounded, tokens.mask), clipped)


def _clip_sequences(
    tokens: PolicyTokens, ratio: Tensor, eps_low: float, eps_high: float
) -> TokenLoss:
    """PPO's clip of `ratio`, (B, 1) or (B, A); a row counts as clipped with any of its tokens."""
    low, high, advantages = 1 - eps_low, 1 + eps_high, tokens.advantages
    surrogate = clipped_surrogate(ratio, advantages, low, high)
    clipped = clipped_against_advantage(ratio, advantages, low=low, high=high)
    rows = {
        "clip_frac_seq_low": clipped["clip_frac_low"].any(dim=1),
        "clip_frac_seq_high": clipped["clip_frac_high"].any(dim=1),
    }
    return TokenLoss(-surrogate, clipped, rows)
