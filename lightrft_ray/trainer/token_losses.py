"""Policy losses whose importance ratio is that of a single token.

Notation: ρ the ratio of current to behaviour policy, A the advantage, lp the current log-prob;
`eps_low`, `eps_high` bound ρ to [1 − eps_low, 1 + eps_high].
"""

from __future__ import annotations

import math

import torch

from lightrft_ray.trainer.policy_tokens import (
    PolicyTokens,
    TokenLoss,
    clipped_against_advantage,
    clipped_surrogate,
)


def ppo(tokens: PolicyTokens, *, eps_low: float = 0.2, eps_high: float = 0.2) -> TokenLoss:
    """−min(ρA, clip(ρ)·A): Schulman et al. 2017, 1707.06347.

    A larger `eps_high` (0.28) is the clip-higher of DAPO, 2503.14476.
    """
    low, high = 1 - eps_low, 1 + eps_high
    clipped = clipped_against_advantage(tokens.ratio, tokens.advantages, low=low, high=high)
    return TokenLoss(-clipped_surrogate(tokens.ratio, tokens.advantages, low, high), clipped)


def ppo_dual_clip(
    tokens: PolicyTokens, *, eps_low: float = 0.2, eps_high: float = 0.2, dual_clip: float = 3.0
) -> TokenLoss:
    """As `ppo`, but where A < 0 the loss never exceeds −c·A: Ye et al. 2019, 1912.09729.

    `dual_clip` is c > 1: bad actions that became c times as likely no longer pull.
    """
    single = ppo(tokens, eps_low=eps_low, eps_high=eps_high)
    is_bad = tokens.advantages < 0
    bounded = torch.minimum(single.loss, -dual_clip * tokens.advantages)
    beyond = {"clip_frac_dual": (tokens.ratio > dual_clip) & is_bad}
    return TokenLoss(torch.where(is_bad, bounded, single.loss), single.clipped | beyond)


def cispo(tokens: PolicyTokens, *, eps_low: float = 1.0, eps_high: float = 0.28) -> TokenLoss:
    """−stopgrad(clip(ρ))·A·lp: MiniMax-M1, 2506.13585.

    Every token keeps a gradient. `eps_low=1` means no lower bound, as in the paper.
    """
    low, high = 1 - eps_low, 1 + eps_high
    ratio = tokens.ratio.detach()
    clipped = {"clip_frac_low": ratio < low, "clip_frac_high": ratio > high}
    return TokenLoss(-ratio.clamp(low, high) * tokens.advantages * tokens.log_probs, clipped)


def cpgd(
    tokens: PolicyTokens,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    drift_coef: float = 0.0,
    drift_cap: float = 2.0,
) -> TokenLoss:
    """−min(d·A, clip(d)·A) + drift_coef·stopgrad(min(ρ − 1, drift_cap))·lp, where d = log ρ.

    Liu et al. 2025, 2505.12504, eq. 2. d is clipped to [log(1 − eps_low), log(1 + eps_high)];
    the drift term pulls back towards the behaviour policy.
    """
    low, high = 1 - eps_low, 1 + eps_high
    surrogate = clipped_surrogate(
        tokens.log_ratio, tokens.advantages, math.log(low), math.log(high)
    )
    drift = (tokens.ratio.detach() - 1).clamp(max=drift_cap) * tokens.log_probs
    clipped = clipped_against_advantage(tokens.ratio, tokens.advantages, low=low, high=high)
    return TokenLoss(drift_coef * drift - surrogate, clipped)


def sapo(tokens: PolicyTokens, *, tau_pos: float = 1.0, tau_neg: float = 1.05) -> TokenLoss:
    """−A·(4/τ)·σ(τ(ρ − 1)): a soft gate instead of a clip; Gao et al. 2025, 2511.20347.

    The temperature τ is `tau_pos` where A > 0 and `tau_neg` elsewhere.
    """
    tau = torch.full_like(tokens.ratio, tau_neg).masked_fill(tokens.advantages > 0, tau_pos)
    gate = 4 / tau * torch.sigmoid(tau * (tokens.ratio - 1))
    return TokenLoss(-tokens.advantages * gate)


def reinforce(tokens: PolicyTokens) -> TokenLoss:
    """−A·lp: Williams 1992; on-policy only, as nothing corrects for the behaviour policy."""
    return TokenLoss(-tokens.advantages * tokens.log_probs)
