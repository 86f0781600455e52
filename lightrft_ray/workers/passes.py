"""The two loops over micro-batches that workers share: scoring and updating."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lightrft_ray.models.rows import Rows
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import Metrics, merge_metrics, metrics_to_cpu
from lightrft_ray.workers.batches import RankBatch, RowBuilder, micro_batches
from lightrft_ray.workers.deepspeed_engine import StepResult, TrainableModel
from lightrft_ray.workers.messages import GroupTokens, split_micro_batches

Objective = Callable[[Rows, ExperienceVL, RankBatch], tuple[Tensor, Metrics]]
"""The share of the loss that a micro-batch of experience has, and its metrics."""
DemonstrationObjective = Callable[[Rows, RankBatch], tuple[Tensor, Metrics]]
"""The same of a micro-batch of demonstrations."""


@torch.no_grad()
def score_actions(
    groups: Sequence[GroupTokens], size: int, builder: RowBuilder, forward: Callable[[Rows], Tensor]
) -> np.ndarray:
    """`forward`'s (…, N, A) values at the response tokens, (…, M) float32, sample after sample."""
    results = []
    for batch in split_micro_batches(groups, size):
        rows = builder.build(batch)
        results.append(forward(rows)[..., rows.action_mask].float().cpu().numpy())
    return np.concatenate(results, axis=-1)


def run_updates(
    model: TrainableModel,
    batches: Sequence[RankBatch],
    size: int,
    builder: RowBuilder,
    objective: Objective,
    *,
    demonstration_objective: DemonstrationObjective | None = None,
    after_update: Callable[[], None] | None = None,
) -> tuple[Metrics, list[StepResult]]:
    """One optimizer step a batch; this rank's metrics over all of them, and each step's result.

    `after_update` is called after each step that was not skipped.
    """
    metrics: Metrics = {}
    results = []
    for batch in batches:

        def loss_of(part: tuple[Rows, ExperienceVL | None], batch: RankBatch = batch) -> Tensor:
            nonlocal metrics
            rows, experience = part
            if experience is not None:
                loss, measured = objective(rows, experience, batch)
            elif demonstration_objective is not None:
                loss, measured = demonstration_objective(rows, batch)
            else:
                raise ValueError("this model does not learn from demonstrations")
            metrics = merge_metrics(metrics, measured)
            return loss

        results.append(model.step(micro_batches(batch, size, builder), loss_of))
        if after_update is not None and not results[-1].skipped:
            after_update()
    return metrics_to_cpu(metrics), results
