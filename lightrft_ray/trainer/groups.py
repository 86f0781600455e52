"""Reductions over prompt groups, whose rows may lie anywhere in a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """The groups of a batch of B rows, numbered 0 … G − 1 in ascending order of their ids."""

    ids: Tensor
    """(G,) the ids."""
    of_row: Tensor
    """(B,) each row's group number."""
    size: Tensor
    """(G,) rows per group."""

    @classmethod
    def of(cls, group_ids: Tensor) -> Groups:
        """From one integer id per row, (B,)."""
        ids, of_row, size = torch.unique(group_ids, return_inverse=True, return_counts=True)
        return cls(ids, of_row, size)

    def sum(self, values: Tensor) -> Tensor:
        """(G,) sums of `values` (B,)."""
        return self._zeros(values).index_add(0, self.of_row, values)

    def spread(self, values: Tensor) -> Tensor:
        """(G,) largest minus smallest of `values` (B,): exactly 0 in a constant group."""
        largest, smallest = (
            self._zeros(values).scatter_reduce(0, self.of_row, values, reduce, include_self=False)
            for reduce in ("amax", "amin")
        )
        return largest - smallest

    def _zeros(self, values: Tensor) -> Tensor:
        return values.new_zeros(len(self.ids))
