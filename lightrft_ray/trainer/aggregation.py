"""From losses per token to one number, with denominators of the global batch.

Every mode weighs all tokens of a row alike, so that a mode is one weight per row. The weights
divide by counts of the *global* batch: losses and gradients of micro-batches and ranks then add
up to those of the whole, however it was split, padded or packed. (A framework that averages
gradients over ranks needs the loss times the number of ranks.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.groups import Groups
from lightrft_ray.trainer.masked import masked_sum


@dataclass(frozen=True)
class Denominators:
    """Counts of the global batch: actions, rows with any action, prompt groups with any action.

    `horizon` is a constant response length, such as the generation limit (Dr. GRPO).
    """

    n_tokens: int
    n_sequences: int
    n_groups: int | None = None
    horizon: int | None = None


def count_denominators(
    action_mask: Tensor, *, group_ids: Tensor | None = None, horizon: int | None = None
) -> Denominators:
    """Counts from the (B, A) mask of the global batch and, where given, its (B,) group ids."""
    lengths = action_mask.bool().sum(dim=1)
    is_used = lengths > 0
    n_groups = None if group_ids is None else len(torch.unique(group_ids[is_used]))
    return Denominators(int(lengths.sum()), int(is_used.sum()), n_groups, horizon)


def group_token_counts(action_mask: Tensor, group_ids: Tensor) -> Tensor:
    """Actions in each row's prompt group, (B,): count on the global batch, then take rows of it."""
    groups = Groups.of(group_ids)
    return groups.sum(action_mask.bool().sum(dim=1))[groups.of_row]


def aggregate(
    token_values: Tensor,
    action_mask: Tensor,
    *,
    mode: str,
    denominators: Denominators,
    group_tokens: Tensor | None = None,
) -> Tensor:
    """Weighted sum of `token_values` (B, A), a scalar; rows without actions add nothing.

    | mode | weight of a token |
    |---|---|
    | `token-mean` | 1 / tokens (DAPO, 2503.14476) |
    | `seq-mean-token-mean` | 1 / (tokens of the row · rows) (GRPO, 2402.03300) |
    | `seq-mean-token-sum` | 1 / rows |
    | `seq-mean-token-sum-norm` | 1 / (rows · horizon) (Dr. GRPO, 2503.20783) |
    | `group-token-mean` | 1 / (tokens of the prompt group · groups) (CPGD, 2505.12504) |

    `group-token-mean` needs `group_tokens` (B,), see `group_token_counts`.
    """
    rows = _Rows(action_mask.bool().sum(dim=1).clamp(min=1), denominators, group_tokens)
    row_sums = masked_sum(token_values, action_mask, dim=1)
    return (row_sums / AGGREGATIONS[mode](rows)).sum()


@dataclass(frozen=True)
class _Rows:
    """What row divisors depend on; lengths are at least 1."""

    lengths: Tensor
    denominators: Denominators
    group_tokens: Tensor | None

    @property
    def n_sequences(self) -> int:
        return max(self.denominators.n_sequences, 1)


def _token_mean(rows: _Rows) -> Tensor | int:
    return max(rows.denominators.n_tokens, 1)


def _seq_mean_token_mean(rows: _Rows) -> Tensor | int:
    return rows.lengths * rows.n_sequences


def _seq_mean_token_sum(rows: _Rows) -> Tensor | int:
    return rows.n_sequences


def _seq_mean_token_sum_norm(rows: _Rows) -> Tensor | int:
    if rows.denominators.horizon is None:
        raise UserError(
            "aggregation seq-mean-token-sum-norm divides by a constant length: set a horizon"
        )
    return rows.n_sequences * rows.denominators.horizon


def _group_token_mean(rows: _Rows) -> Tensor | int:
    if rows.group_tokens is None or rows.denominators.n_groups is None:
        raise UserError("aggregation group-token-mean needs the prompt groups of the batch")
    return rows.group_tokens.clamp(min=1) * max(rows.denominators.n_groups, 1)


AGGREGATIONS: dict[str, Callable[[_Rows], Tensor | int]] = {
    "token-mean": _token_mean,
    "seq-mean-token-mean": _seq_mean_token_mean,
    "seq-mean-token-sum": _seq_mean_token_sum,
    "seq-mean-token-sum-norm": _seq_mean_token_sum_norm,
    "group-token-mean": _group_token_mean,
}
"""Divisors of a row's tokens, by mode name."""
