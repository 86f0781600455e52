"""Scoring a batch: rewards, reference log-probs, values and learner log-probs, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.batch import RolloutBatch, response_mask
from lightrft_ray.driver.rewards import (
    RewardAccount,
    SampleRewards,
    start_rewards,
    wait_rewards,
)
from lightrft_ray.driver.workers import Workers
from lightrft_ray.rewards.recipes import ONLY
from lightrft_ray.rewards.remote.statistics import RemoteFigures
from lightrft_ray.trainer.assemble import Scores
from lightrft_ray.workers.actor_group import ActorGroup, Call
from lightrft_ray.workers.messages import GroupTokens, RolloutGroup, split_micro_batches


class Scorer:
    """Asks all scoring workers at once and puts their answers together."""

    def __init__(self, config: RunConfig, workers: Workers) -> None:
        self._config = config
        self._workers = workers
        self.account = RewardAccount()
        self.figures: Mapping[str, RemoteFigures] = {}
        """How each source of rewards does, since the start."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain values."""
        return asdict(self.account)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self.account = RewardAccount(**state)

    def rewards(self, groups: Sequence[RolloutGroup]) -> SampleRewards:
        """Rewards of all samples of the groups."""
        return self._wait_rewards(start_rewards(self._workers.reward, groups))

    def score(self, batch: RolloutBatch, rewards: SampleRewards | None = None) -> Scores:
        """Scores of a batch; the driver never fetches its pixels.

        `rewards` are given where they are known already.
        """
        workers = self._workers
        pending = start_rewards(workers.reward, batch.groups) if rewards is None else []
        reference = _start_shared(workers.reference, "log_probs", batch.tokens)
        values = _start_shared(workers.critic, "values", batch.tokens)
        algorithm = self._config.algorithm
        learner = workers.learner if algorithm.old_log_probs == "learner" else None
        method = "log_probs_and_entropy" if algorithm.selects_by_entropy else "log_probs"
        own = _start_shared(learner, method, batch.tokens)
        if rewards is None:
            rewards = self._wait_rewards(pending)
        recomputed, entropy = _gather_pair(learner, own, batch)
        rollout_log_probs = batch.rollout_log_probs
        return Scores(
            rewards=rewards.values,
            group_ids=batch.group_ids,
            action_log_probs=rollout_log_probs if recomputed is None else recomputed,
            base_action_log_probs=_gather(workers.reference, reference, batch),
            values=_gather(workers.critic, values, batch),
            rollout_log_probs=rollout_log_probs,
            action_entropy=entropy,
            is_truncated=batch.is_truncated,
            process_rewards=rewards.padded_process(response_mask(batch.samples)),
            reward_components=_parts(rewards.components),
        )

    def _wait_rewards(self, pending: Sequence[Call]) -> SampleRewards:
        report = wait_rewards(self._workers.reward, pending)
        self.figures = report.figures
        errors = [score.error for score in report.scores]
        self.account.add(errors, self._config.reward.max_failed_fraction)
        return SampleRewards.of(report)


def _parts(components: Sequence[Mapping[str, float]]) -> list[dict[str, float]] | None:
    """What rewards are made of; None where each is a single number."""
    parts = [{name: each[name] for name in each if name != ONLY} for each in components]
    return parts if any(parts) else None


def _start_shared(
    group: ActorGroup | None, method: str, tokens: Sequence[GroupTokens]
) -> list[Call]:
    """Share samples out evenly, as collective passes of sharded models need."""
    if group is None:
        return []
    count = sum(len(each.responses) for each in tokens)
    shares = split_micro_batches(tokens, -(-count // len(group)))
    return [group.send(place, method, share) for place, share in enumerate(shares)]


def _gather(
    group: ActorGroup | None, pending: Sequence[Call], batch: RolloutBatch
) -> Tensor | None:
    if group is None:
        return None
    return batch.padded(np.concatenate(group.collect(pending)))


def _gather_pair(
    learner: ActorGroup | None, pending: Sequence[Call], batch: RolloutBatch
) -> tuple[Tensor | None, Tensor | None]:
    """Log-probs and, where they were asked for, entropies."""
    if learner is None:
        return None, None
    rows = np.atleast_2d(np.concatenate(learner.collect(pending), axis=-1))
    entropy = batch.padded(rows[1]) if len(rows) > 1 else None
    return batch.padded(rows[0]), entropy
