"""Which of the generated groups and samples are trained on, by their rewards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.rewards import SampleRewards
from lightrft_ray.driver.rollout import RolloutManager
from lightrft_ray.driver.scoring import Scorer
from lightrft_ray.trainer.selection import informative_groups
from lightrft_ray.workers.messages import RolloutGroup

_MAX_BATCHES = 10


@dataclass(frozen=True)
class ScoredGroup:
    """A group and the rewards of its samples, process rewards included in what is compared."""

    group: RolloutGroup
    rewards: SampleRewards

    def best(self, count: int, *, mask_truncated: bool) -> "ScoredGroup":
        """The group with its `count` best samples alone, the earlier of equals, in their order.

        Samples that would not be trained on come last: those without a reward, and truncated ones
        where they are masked.
        """
        totals = self.rewards.totals
        usable = totals.isfinite()
        if mask_truncated:
            usable &= ~_is_truncated(self.group)
        ranked = totals.where(usable, -torch.inf).argsort(descending=True, stable=True)
        chosen = ranked[:count].sort().values.tolist()
        samples = tuple(self.group.samples[index] for index in chosen)
        return ScoredGroup(replace(self.group, samples=samples), self.rewards.select(chosen))


@dataclass(frozen=True)
class Collected:
    """The groups of a step, how many more were dropped, and the batches drawn for them."""

    groups: list[ScoredGroup]
    dropped: int
    batches: int


def has_signal(scored: Sequence[ScoredGroup], *, mask_truncated: bool) -> list[bool]:
    """Of each group, whether the samples that count do not all have the same reward.

    Samples without a reward do not count, nor do truncated ones where they are masked.
    """
    rewards = torch.cat([each.rewards.totals for each in scored])
    counts = rewards.isfinite()
    if mask_truncated:
        counts = counts & ~torch.cat([_is_truncated(each.group) for each in scored])
    sizes = torch.tensor([len(each.group.samples) for each in scored])
    ids = torch.arange(len(scored)).repeat_interleave(sizes)
    kept = informative_groups(rewards[counts], ids[counts], keep_singletons=False).group_ids
    return torch.isin(torch.arange(len(scored)), kept).tolist()


def collect(
    draw: Callable[[], list[ScoredGroup]],
    is_wanted: Callable[[Sequence[ScoredGroup]], list[bool]],
    *,
    count: int,
    max_batches: int,
) -> Collected:
    """Draws batches until `count` groups are wanted, `max_batches` at most.

    Where they do not suffice, groups that are not wanted fill the step: its size, and with it the
    division over ranks, never changes. Each draw must give at least `count` groups.
    """
    wanted: list[ScoredGroup] = []
    others: list[ScoredGroup] = []
    batches = 0
    while len(wanted) < count and batches < max_batches:
        drawn = draw()
        batches += 1
        for each, is_one in zip(drawn, is_wanted(drawn), strict=True):
            (wanted if is_one else others).append(each)
    chosen = [*wanted, *others][:count]
    return Collected(chosen, len(wanted) + len(others) - len(chosen), batches)


def _is_truncated(group: RolloutGroup) -> Tensor:
    """(n,) bool: samples cut by the length limit."""
    return torch.tensor([sample.is_truncated for sample in group.samples])


class RewardSelection:
    """Draws a step's groups where rewards decide what is trained on."""

    def __init__(self, config: RunConfig, rollouts: RolloutManager, scorer: Scorer) -> None:
        self._config = config
        self._rollouts = rollouts
        self._scorer = scorer

    @property
    def is_needed(self) -> bool:
        """Whether rewards must be known before the other scores are asked for."""
        rollout = self._config.rollout
        return rollout.dynamic_sampling or rollout.best_of_n is not None

    def next_batch(self) -> Collected:
        """`rollout_batch_size` groups; those left out are counted as filtered."""
        rollout = self._config.rollout
        limit = rollout.dynamic_sampling_max_batches or _MAX_BATCHES
        collected = collect(
            self._draw,
            self._is_wanted,
            count=rollout.rollout_batch_size,
            max_batches=limit if rollout.dynamic_sampling else 1,
        )
        self._rollouts.account.filtered += collected.dropped
        return collected

    def _draw(self) -> list[ScoredGroup]:
        groups = self._rollouts.next_batch()
        rewards = self._scorer.rewards(groups)
        self._rollouts.note_rewards(groups, rewards.totals)
        by_group = rewards.split([len(group.samples) for group in groups])
        scored = [ScoredGroup(*pair) for pair in zip(groups, by_group, strict=True)]
        rollout = self._config.rollout
        if rollout.best_of_n is None:
            return scored
        count, masks = rollout.n_samples_per_prompt, self._config.reward.mask_truncated
        return [each.best(count, mask_truncated=masks) for each in scored]

    def _is_wanted(self, scored: Sequence[ScoredGroup]) -> list[bool]:
        if not self._config.rollout.dynamic_sampling:
            return [True] * len(scored)
        return has_signal(scored, mask_truncated=self._config.reward.mask_truncated)
