"""What a batch trains on: groups that carry signal, tokens that decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.groups import Groups
from lightrft_ray.trainer.masked import promote_half


@dataclass(frozen=True)
class GroupSelection:
    """Ids of the kept groups in order of first appearance, and the kept rows, ascending."""

    group_ids: Tensor
    rows: Tensor


def informative_groups(
    values: Tensor, group_ids: Tensor, *, tolerance: float = 0.0, keep_singletons: bool
) -> GroupSelection:
    """Groups whose samples differ: the dynamic sampling of DAPO, 2503.14476.

    A group stays if max − min of `values` (B,) exceeds `tolerance`. `values` are the *task
    metric*: with shaped rewards a length penalty would rescue a group that is solved throughout.
    `keep_singletons` decides about groups of one, which have no spread. Nothing left is no error:
    the caller draws new prompts.
    """
    groups = Groups.of(group_ids)
    is_kept = groups.spread(promote_half(values)) > tolerance
    if keep_singletons:
        is_kept = is_kept | (groups.size == 1)
    rows = is_kept[groups.of_row].nonzero().squeeze(1)
    return GroupSelection(_by_first_appearance(group_ids[rows]), rows)


def high_entropy_mask(entropy: Tensor, action_mask: Tensor, *, ratio: float) -> Tensor:
    """The ⌈ratio · N⌉ of the N actions with the highest entropy; (B, A) bool (2506.01939).

    The choice is over all rows of `entropy` (B, A), so give the whole batch. The loss of the
    chosen tokens is still divided by N: pass the mask as `token_weights` of `policy_loss`.
    """
    if not 0 < ratio <= 1:
        raise UserError(f"high-entropy token ratio {ratio}: it must be above 0 and at most 1")
    mask = action_mask.bool()
    n_tokens = int(mask.sum())
    # 0.07 · 100 is a little over 7 in floating point, and must not become 8.
    n_kept = math.ceil(ratio * n_tokens - 1e-9 * n_tokens)
    ranked = promote_half(entropy.detach()).masked_fill(~mask, -math.inf).flatten()
    kept = torch.zeros_like(mask).flatten()
    kept[ranked.topk(n_kept).indices] = True
    return kept.view_as(mask)


def _by_first_appearance(ids: Tensor) -> Tensor:
    """The distinct values of `ids`, in the order in which they first occur."""
    distinct = Groups.of(ids)
    positions = torch.arange(len(ids), device=ids.device)
    first = torch.full_like(distinct.size, len(ids))
    first = first.scatter_reduce(0, distinct.of_row, positions, "amin")
    return distinct.ids[first.argsort()]
