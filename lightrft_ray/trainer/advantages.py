"""Advantages and returns: with a critic, from token rewards, and relative to a prompt group.

Tensors over actions are (B, A): row i is a sample, column t its t-th action, `action_mask` says
which of them exist. A masked position inside a response (the output of a tool) is skipped: it is
no step, has no value and does not discount. Results are float32 or better, and 0 where masked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.trainer.groups import Groups
from lightrft_ray.trainer.masked import masked_whiten, promote_half, zero_masked


def generalized_advantage_estimation(
    values: Tensor,
    rewards: Tensor,
    action_mask: Tensor,
    *,
    gamma: float,
    lambd: float | Tensor,
    value_lambd: float | None = None,
) -> tuple[Tensor, Tensor]:
    """GAE (Schulman et al. 2015, 1506.02438): `(advantages, returns)`, both (B, A).

    δ_t = r_t + γ V_{t+1} − V_t and Â_t = δ_t + γλ Â_{t+1}, with V = Â = 0 after the last action,
    whether the response ended or was cut; returns are Â + V. `lambd` is a number or one per row,
    (B,). `value_lambd` decouples the λ of the returns (VAPO, 2504.05118); left out, both are the
    same. Advantages are not whitened.
    """
    values, rewards = zero_masked(values, action_mask), zero_masked(rewards, action_mask)
    deltas = rewards + gamma * _next_values(values, action_mask) - values
    advantages = _discounted_sums(deltas, action_mask, gamma * lambd)
    if value_lambd is None:
        return advantages, zero_masked(advantages + values, action_mask)
    value_advantages = _discounted_sums(deltas, action_mask, gamma * value_lambd)
    return advantages, zero_masked(value_advantages + values, action_mask)


def length_adaptive_lambda(action_mask: Tensor, *, alpha: float) -> Tensor:
    """λ = 1 − 1 / (α · length) of each row, limited to [0, 1]; (B,) float32 (VAPO, 2504.05118)."""
    lengths = action_mask.bool().sum(dim=1).clamp(min=1)
    return (1 - 1 / (alpha * lengths)).clamp(0, 1)


def cumulative_returns(rewards: Tensor, action_mask: Tensor, *, gamma: float) -> Tensor:
    """R_t = r_t + γ R_{t+1} over the actions of each row, (B, A)."""
    return _discounted_sums(zero_masked(rewards, action_mask), action_mask, gamma)


def reinforce_plus_plus(
    rewards: Tensor, action_mask: Tensor, *, gamma: float = 1.0, eps: float = 1e-8
) -> tuple[Tensor, Tensor]:
    """REINFORCE++ (Hu 2025, 2501.03262): returns of KL-shaped token rewards, whitened globally.

    `rewards` (B, A) come from `kl.token_rewards` and hold the global batch. Gives
    `(advantages, returns)`, both (B, A).
    """
    returns = cumulative_returns(rewards, action_mask, gamma=gamma)
    return masked_whiten(returns, action_mask, eps=eps), returns


def reinforce_plus_plus_baseline(
    scores: Tensor, group_ids: Tensor, action_mask: Tensor, *, eps: float = 1e-8
) -> Tensor:
    """REINFORCE++ with a group baseline (2501.03262): x − group mean on every token, whitened.

    `scores` and `group_ids` are (B,) of the global batch, the result is (B, A).
    """
    centred = spread_over_actions(group_centred(scores, group_ids), action_mask)
    return masked_whiten(centred, action_mask, eps=eps)


def spread_over_actions(row_values: Tensor, action_mask: Tensor) -> Tensor:
    """One value per row, (B,), at each of its actions, (B, A)."""
    return zero_masked(row_values.unsqueeze(1).expand(action_mask.shape), action_mask)


def group_normalized(scores: Tensor, group_ids: Tensor, *, eps: float = 1e-6) -> Tensor:
    """GRPO (Shao et al. 2024, 2402.03300): (x − mean) / (std + eps) within the group, (B,).

    The standard deviation is the unbiased one. `scores` and `group_ids` are (B,); groups may
    differ in size and lie anywhere. As in all functions of this family, a group of equal scores,
    so also a group of one, gives exactly 0.
    """
    groups = _group_statistics(scores, group_ids)
    return (groups.centred / (groups.std + eps)).to(promote_half(scores).dtype)


def group_centred(scores: Tensor, group_ids: Tensor) -> Tensor:
    """Dr. GRPO (Liu et al. 2025, 2503.20783): x − group mean, (B,)."""
    return _group_statistics(scores, group_ids).centred.to(promote_half(scores).dtype)


def leave_one_out(scores: Tensor, group_ids: Tensor) -> Tensor:
    """RLOO (Ahmadian et al. 2024, 2402.14740): x − mean of the group's other samples, (B,)."""
    groups = _group_statistics(scores, group_ids)
    # x − (Σ − x) / (n − 1) = (x − Σ / n) · n / (n − 1)
    scale = groups.size / (groups.size - 1).clamp(min=1)
    return (groups.centred * scale).to(promote_half(scores).dtype)


def clip_filtered(scores: Tensor, group_ids: Tensor, *, cap: float = 3.0) -> Tensor:
    """CPGD's clip-filter weight (Liu et al. 2025, 2505.12504, section 4.3), (B,).

    (x − group mean) · min(cap, groups / groups with spread): groups without signal leave the
    weight of the batch to the others.
    """
    groups = _group_statistics(scores, group_ids)
    weight = min(cap, groups.n_groups / max(groups.n_spread, 1))
    return (groups.centred * weight).to(promote_half(scores).dtype)


@dataclass(frozen=True)
class _GroupStatistics:
    """Of each row's group, (B,), and the number of groups: all, and those with any spread."""

    size: Tensor
    centred: Tensor
    std: Tensor
    n_groups: int
    n_spread: int


def _group_statistics(scores: Tensor, group_ids: Tensor) -> _GroupStatistics:
    """In float64; a constant group is centred to exactly 0."""
    exact, groups = scores.double(), Groups.of(group_ids)
    mean = groups.sum(exact) / groups.size
    # By its extremes, as rounding can leave a constant group a small deviation from its mean.
    has_spread = groups.spread(exact) > 0
    centred = exact - mean[groups.of_row]
    centred = torch.where(has_spread[groups.of_row], centred, torch.zeros_like(centred))
    std = (groups.sum(centred.square()) / (groups.size - 1).clamp(min=1)).sqrt()
    return _GroupStatistics(
        size=groups.size[groups.of_row],
        centred=centred,
        std=std[groups.of_row],
        n_groups=len(groups.ids),
        n_spread=int(has_spread.sum()),
    )


def _next_values(values: Tensor, action_mask: Tensor) -> Tensor:
    """The value at the next action of the row, 0 after the last one; (B, A)."""
    following = torch.zeros_like(values)
    carried = values.new_zeros(values.size(0))
    mask = action_mask.bool()
    for step in reversed(range(values.size(1))):
        following[:, step] = carried
        carried = torch.where(mask[:, step], values[:, step], carried)
    return following


def _discounted_sums(terms: Tensor, action_mask: Tensor, factor: float | Tensor) -> Tensor:
    """y_t = x_t + factor · y_{t+1} over the actions of each row; `factor` may be one per row."""
    mask = action_mask.bool()
    sums = torch.zeros_like(terms)
    carried = terms.new_zeros(terms.size(0))
    for step in reversed(range(terms.size(1))):
        carried = torch.where(mask[:, step], terms[:, step] + factor * carried, carried)
        sums[:, step] = carried
    return zero_masked(sums, mask)
