"""Scoring a batch: rewards, reference log-probs, values and learner log-probs, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.data.prompt_text import user_text
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.workers import Workers
from lightrft_ray.rewards.scoring import RewardInputs, Rewards
from lightrft_ray.trainer.assemble import Scores
from lightrft_ray.workers.actor_group import ActorGroup, Call
from lightrft_ray.workers.messages import (
    GeneratedSample,
    GroupTokens,
    RolloutGroup,
    split_micro_batches,
)

_REASONS_NAMED = 3


@dataclass
class RewardAccount:
    """How many samples were scored, how many failed, and the first reasons."""

    scored: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, rewards: Rewards, max_failed_fraction: float) -> None:
        """Count a batch; UserError once more than `max_failed_fraction` of all samples failed."""
        self.scored += len(rewards.values)
        self.failed += len(rewards.faults)
        self.reasons += list(rewards.faults.values())[: _REASONS_NAMED - len(self.reasons)]
        if self.failed > max_failed_fraction * self.scored:
            raise UserError(
                f"{self.failed} of {self.scored} samples got no reward, more than the share "
                f"{max_failed_fraction:g} that reward.max_failed_fraction allows "
                f"({'; '.join(self.reasons)})"
            )


class Scorer:
    """Asks all scoring workers at once and puts their answers together."""

    def __init__(self, config: RunConfig, workers: Workers) -> None:
        self._config = config
        self._workers = workers
        self.account = RewardAccount()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain values."""
        return asdict(self.account)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self.account = RewardAccount(**state)

    def rewards(self, groups: Sequence[RolloutGroup]) -> Tensor:
        """(B,) float32 of all samples, NaN where scoring failed."""
        return self._wait_rewards(start_rewards(self._workers.reward, _pairs(groups)))

    def score(self, batch: RolloutBatch, rewards: Tensor | None = None) -> Scores:
        """Scores of a batch; the driver never fetches its pixels.

        `rewards` (B,) are given where they are known already.
        """
        workers = self._workers
        pending = start_rewards(workers.reward, _pairs(batch.groups)) if rewards is None else []
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
            rewards=rewards,
            group_ids=batch.group_ids,
            action_log_probs=rollout_log_probs if recomputed is None else recomputed,
            base_action_log_probs=_gather(workers.reference, reference, batch),
            values=_gather(workers.critic, values, batch),
            rollout_log_probs=rollout_log_probs,
            action_entropy=entropy,
            is_truncated=batch.is_truncated,
        )

    def _wait_rewards(self, pending: Sequence[Call]) -> Tensor:
        scored = wait_rewards(self._workers.reward, pending)
        self.account.add(scored, self._config.reward.max_failed_fraction)
        return torch.tensor(scored.values, dtype=torch.float32)


def _pairs(groups: Sequence[RolloutGroup]) -> list[tuple[RolloutGroup, GeneratedSample]]:
    return [(group, sample) for group in groups for sample in group.samples]


def start_rewards(
    rewarders: ActorGroup, samples: Sequence[tuple[RolloutGroup, GeneratedSample]]
) -> list[Call]:
    """Ask for the rewards of samples, shared out over the reward workers."""
    size = -(-len(samples) // len(rewarders))
    shares = [samples[start : start + size] for start in range(0, len(samples), size)]
    return [
        rewarders.send(place, "score", _reward_inputs(share)) for place, share in enumerate(shares)
    ]


def wait_rewards(rewarders: ActorGroup, pending: Sequence[Call]) -> Rewards:
    """The rewards of `start_rewards`, in the order of its samples."""
    values: list[float] = []
    faults: dict[int, str] = {}
    for part in rewarders.collect(pending):
        faults |= {index + len(values): reason for index, reason in part.faults.items()}
        values += part.values
    return Rewards(values, faults)


def _reward_inputs(samples: Sequence[tuple[RolloutGroup, GeneratedSample]]) -> RewardInputs:
    prompts = [group.task.prompt for group, _ in samples]
    return RewardInputs(
        prompts=[user_text(prompt) for prompt in prompts],
        responses=[sample.text for _, sample in samples],
        references=[prompt.reference for prompt in prompts],
        labels=[prompt.label for prompt in prompts],
    )


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
