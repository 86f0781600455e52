"""Dividing samples by their token counts: over ranks, and into micro-batches.

Balance is all that depends on the division. Losses use denominators of the global batch
(`aggregation.count_denominators`), so that gradients are the same for every division.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lightrft_ray.config.errors import UserError


def balanced_partition(
    lengths: Sequence[int], n_parts: int, *, equal_size: bool = False
) -> list[list[int]]:
    """Indices of `lengths` (tokens per sample) in `n_parts` lists of nearly equal sums.

    The largest differencing method of Karmarkar and Karp (1982): of all partial divisions the
    two with the widest spread are merged, large onto small, until one is left. `equal_size` gives
    each part the same number of samples, which must then be a multiple of `n_parts`; otherwise
    a part may stay empty. Indices ascend within a part; equal input gives equal output.
    """
    if equal_size and len(lengths) % n_parts:
        raise UserError(
            f"{len(lengths)} samples cannot be shared evenly by {n_parts} ranks: "
            "make the batch size a multiple of the number of ranks"
        )
    heap = _single_divisions(lengths, n_parts, at_once=n_parts if equal_size else 1)
    heapq.heapify(heap)
    while len(heap) > 1:
        widest = heapq.heappop(heap)
        heapq.heapreplace(heap, widest.merge(heap[0]))
    return [sorted(part.indices) for part in heap[0].parts] if heap else [[]] * n_parts


def token_budget_batches(
    lengths: Sequence[int], max_tokens: int, *, min_batches: int = 1
) -> list[list[int]]:
    """Indices of `lengths` in few balanced micro-batches of at most `max_tokens` tokens each.

    A sample longer than the budget raises it to its own length, which memory has to hold in any
    case. Ranks must run equally many micro-batches: pass the largest number among them as
    `min_batches`. With more micro-batches than samples the rest are empty.
    """
    budget = max(max_tokens, *lengths) if lengths else max_tokens
    n_batches = max(min_batches, -(-sum(lengths) // budget))
    batches = balanced_partition(lengths, n_batches)
    while any(sum(lengths[index] for index in batch) > budget for batch in batches):
        n_batches += 1
        batches = balanced_partition(lengths, n_batches)
    return batches


class _Part(NamedTuple):
    total: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class _Division:
    """Some of the samples divided into parts, the heaviest first."""

    parts: tuple[_Part, ...]
    first: int
    """The first sample, to break ties the same way everywhere."""

    def __lt__(self, other: _Division) -> bool:
        return (-self._spread, self.first) < (-other._spread, other.first)

    @property
    def _spread(self) -> int:
        return self.parts[0].total - self.parts[-1].total

    def merge(self, other: _Division) -> _Division:
        merged = [
            _Part(heavy.total + light.total, heavy.indices + light.indices)
            for heavy, light in zip(self.parts, reversed(other.parts), strict=True)
        ]
        return _Division(_heaviest_first(merged), min(self.first, other.first))


def _single_divisions(lengths: Sequence[int], n_parts: int, *, at_once: int) -> list[_Division]:
    """Divisions of `at_once` samples each, one sample a part; samples of like length together."""
    singles = _heaviest_first([_Part(length, (index,)) for index, length in enumerate(lengths)])
    empty = (_Part(0, ()),) * (n_parts - at_once)
    return [
        _Division(singles[start : start + at_once] + empty, start)
        for start in range(0, len(singles), at_once)
    ]


def _heaviest_first(parts: list[_Part]) -> tuple[_Part, ...]:
    return tuple(sorted(parts, key=lambda part: -part.total))
