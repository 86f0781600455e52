"""Metrics that merge: parts of a batch give exactly the metric of the whole.

A mean of the micro-batches' means would weigh a micro-batch of ten tokens like one of ten
thousand. A metric here keeps the sums it is made of, as 0-dimensional tensors on the device of
its inputs, so that no micro-batch waits for a copy to the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from lightrft_ray.trainer.masked import masked_sum, promote_half


class Metric(Protocol):
    """What all metrics can do."""

    def merge(self, other: Self) -> Self:
        """The metric of two disjoint parts together."""

    def value(self) -> Tensor:
        """The metric itself, 0-dimensional."""

    def cpu(self) -> Self:
        """The same on the CPU, fit to be sent to another process."""


Metrics = dict[str, Metric]


@dataclass(frozen=True)
class Mean:
    """Σ x and the number of values; the mean of none is 0."""

    total: Tensor
    count: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor) -> Mean:
        """Mean of the unmasked `values`; booleans give a fraction."""
        values = values.detach()
        numbers = values.float() if values.dtype == torch.bool else values
        return cls(masked_sum(numbers, mask), mask.bool().sum())

    def merge(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    def value(self) -> Tensor:
        return self.total / self.count.clamp(min=1)

    def cpu(self) -> Mean:
        return Mean(self.total.cpu(), self.count.cpu())


@dataclass(frozen=True)
class EffectiveSampleSize:
    """(Σ w)² / (n Σ w²): 1 for equal weights, 1/n if a single one counts, 0 if none does."""

    total: Tensor
    square_total: Tensor
    count: Tensor

    @classmethod
    def of(cls, weights: Tensor, mask: Tensor) -> EffectiveSampleSize:
        """Of the unmasked `weights`."""
        weights = promote_half(weights.detach())
        squares = masked_sum(weights.square(), mask)
        return cls(masked_sum(weights, mask), squares, mask.bool().sum())

    def merge(self, other: EffectiveSampleSize) -> EffectiveSampleSize:
        return EffectiveSampleSize(
            self.total + other.total,
            self.square_total + other.square_total,
            self.count + other.count,
        )

    def value(self) -> Tensor:
        denominator = self.count * self.square_total
        return self.total.square() / denominator.where(denominator > 0, 1.0)

    def cpu(self) -> EffectiveSampleSize:
        return EffectiveSampleSize(self.total.cpu(), self.square_total.cpu(), self.count.cpu())


@dataclass(frozen=True)
class Maximum:
    """The largest value; −inf of none."""

    largest: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor) -> Maximum:
        """Of the unmasked `values`."""
        return cls(values.detach().where(mask.bool(), -math.inf).max())

    def merge(self, other: Maximum) -> Maximum:
        return Maximum(torch.maximum(self.largest, other.largest))

    def value(self) -> Tensor:
        return self.largest

    def cpu(self) -> Maximum:
        return Maximum(self.largest.cpu())


@dataclass(frozen=True)
class Minimum:
    """The smallest value; +inf of none."""

    smallest: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor) -> Minimum:
        """Of the unmasked `values`."""
        return cls(values.detach().where(mask.bool(), math.inf).min())

    def merge(self, other: Minimum) -> Minimum:
        return Minimum(torch.minimum(self.smallest, other.smallest))

    def value(self) -> Tensor:
        return self.smallest

    def cpu(self) -> Minimum:
        return Minimum(self.smallest.cpu())


def merge_metrics(first: Metrics, second: Metrics) -> Metrics:
    """Metrics of two disjoint parts together; a name that only one part has is kept."""
    common = {name: first[name].merge(second[name]) for name in first.keys() & second.keys()}
    return first | second | common


def metrics_to_cpu(metrics: Metrics) -> Metrics:
    """All of them on the CPU."""
    return {name: metric.cpu() for name, metric in metrics.items()}


def metric_values(metrics: Metrics) -> dict[str, float]:
    """Plain numbers."""
    return {name: metric.value().item() for name, metric in metrics.items()}
