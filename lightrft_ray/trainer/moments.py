"""Count, mean and spread of a stream of numbers, mergeable over batches and ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Count, mean and M2 = Σ (x − mean)² of all values seen, as float64 numbers.

    Two of them merge by the parallel rule of Chan, Golub and LeVeque (1979), so statistics of
    ranks or micro-batches merge to those of the whole; sums of squares would lose every digit
    where the mean is large.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, values: Tensor) -> Moments:
        """Moments of all elements of `values` (any shape, also empty)."""
        if values.numel() == 0:
            return cls()
        exact = values.detach().double()
        mean = exact.mean()
        return cls(exact.numel(), mean.item(), (exact - mean).square().sum().item())

    def merge(self, other: Moments) -> Moments:
        """Moments of both streams together."""
        count = self.count + other.count
        if count == 0:
            return self
        delta = other.mean - self.mean
        share = other.count / count
        return Moments(
            count,
            self.mean + delta * share,
            self.m2 + other.m2 + delta * delta * self.count * share,
        )

    @property
    def variance(self) -> float:
        """Unbiased variance; 0 with fewer than two values."""
        return self.m2 / (self.count - 1) if self.count > 1 else 0.0

    @property
    def std(self) -> float:
        """Square root of the unbiased variance."""
        return math.sqrt(self.variance)
