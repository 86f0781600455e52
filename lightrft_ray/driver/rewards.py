"""Rewards of a batch: asked for, waited for, and counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lightrft_ray.config import UserError
from lightrft_ray.rewards.remote.statistics import RemoteFigures
from lightrft_ray.workers.actor_group import ActorGroup, Call
from lightrft_ray.workers.messages import RewardReport, RolloutGroup

_REASONS_NAMED = 3


@dataclass
class RewardAccount:
    """How many samples were scored, how many failed, the first reasons and the last."""

    scored: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)
    last: str = ""

    def add(self, errors: Sequence[str | None], max_failed_fraction: float) -> None:
        """Count samples by their `errors`, None for those with a reward.

        UserError once more than `max_failed_fraction` of all samples failed.
        """
        faults = [error for error in errors if error is not None]
        self.scored += len(errors)
        self.failed += len(faults)
        self.reasons += faults[: _REASONS_NAMED - len(self.reasons)]
        self.last = faults[-1] if faults else self.last
        if self.failed > max_failed_fraction * self.scored:
            is_named = self.last in self.reasons
            reasons = self.reasons if is_named else [*self.reasons, f"last: {self.last}"]
            raise UserError(
                f"{self.failed} of {self.scored} samples got no reward, more than the share "
                f"{max_failed_fraction:g} that reward.max_failed_fraction allows "
                f"({'; '.join(reasons)})"
            )


@dataclass(frozen=True)
class SampleRewards:
    """Rewards of B samples: `values` (B,) float32, NaN where scoring failed.

    `process` has the rewards of a response's tokens and steps, (L,) with NaN where there is none,
    or None; `components` the parts of the reward by name, none where scoring failed.
    """

    values: Tensor
    process: tuple[np.ndarray | None, ...]
    components: tuple[Mapping[str, float], ...]

    @staticmethod
    def of(report: RewardReport) -> "SampleRewards":
        """Those of a report."""
        scores = report.scores
        values = [torch.nan if each.score is None else each.score for each in scores]
        return SampleRewards(
            torch.tensor(values, dtype=torch.float32),
            report.process,
            tuple(each.components for each in scores),
        )

    @staticmethod
    def joined(parts: Sequence["SampleRewards"]) -> "SampleRewards":
        """Those of parts in a row."""
        return SampleRewards(
            torch.cat([part.values for part in parts]),
            tuple(each for part in parts for each in part.process),
            tuple(each for part in parts for each in part.components),
        )

    def select(self, rows: Sequence[int]) -> "SampleRewards":
        """Those of some samples, in the order of `rows`."""
        return SampleRewards(
            self.values[list(rows)],
            tuple(self.process[row] for row in rows),
            tuple(self.components[row] for row in rows),
        )

    def split(self, sizes: Sequence[int]) -> list["SampleRewards"]:
        """Those of samples in a row, `sizes` of them each."""
        starts = np.cumsum([0, *sizes]).tolist()
        return [self.select(range(*span)) for span in pairwise(starts)]

    @property
    def totals(self) -> Tensor:
        """(B,) with the process rewards of each response added, to compare samples by."""
        sums = [0.0 if each is None else float(np.nansum(each)) for each in self.process]
        return self.values + torch.tensor(sums, dtype=torch.float32)

    def padded_process(self, mask: Tensor) -> Tensor | None:
        """(B, A) by the mask of response tokens, NaN where there is none; None without any."""
        if all(each is None for each in self.process):
            return None
        padded = torch.full(mask.shape, torch.nan)
        for row, each in enumerate(self.process):
            if each is not None:
                padded[row, : len(each)] = torch.from_numpy(each.copy())
        return padded


def start_rewards(rewarders: ActorGroup, groups: Sequence[RolloutGroup]) -> list[Call]:
    """Ask for the rewards of all samples, the groups shared out over the reward workers."""
    size = -(-len(groups) // len(rewarders))
    shares = [groups[start : start + size] for start in range(0, len(groups), size)]
    return [
        rewarders.send(place, "score", [group.responses for group in share])
        for place, share in enumerate(shares)
    ]


def wait_rewards(rewarders: ActorGroup, pending: Sequence[Call]) -> RewardReport:
    """The rewards of `start_rewards`, in the order of its samples."""
    parts: list[RewardReport] = rewarders.collect(pending)
    figures: dict[str, RemoteFigures] = {}
    for part in parts:
        figures |= part.figures
    return RewardReport(
        tuple(score for part in parts for score in part.scores),
        tuple(rewards for part in parts for rewards in part.process),
        figures,
    )
