"""A step's updates of critic and policy, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightrft_ray.config import RunConfig
from lightrft_ray.data.demonstrations import Demonstration
from lightrft_ray.driver.demonstrations import DemonstrationFeed
from lightrft_ray.driver.partition import divide_batch
from lightrft_ray.driver.records import update_record
from lightrft_ray.driver.skipped_updates import SkippedUpdates
from lightrft_ray.driver.workers import Workers
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.batches import RankBatch
from lightrft_ray.workers.messages import GroupTokens

Record = dict[str, float]


class Updater:
    """Divides experience over the ranks and has them train on it."""

    def __init__(
        self, config: RunConfig, workers: Workers, demonstrations: Sequence[Demonstration] = ()
    ) -> None:
        self._config = config
        self._workers = workers
        self.demonstrations = (
            DemonstrationFeed(config, demonstrations, workers.generator) if demonstrations else None
        )
        folder = RunFolder(Path(config.output_dir)).skipped_updates
        self.skipped = SkippedUpdates(folder, config.trainer.max_skipped_in_row)

    def train(
        self,
        step: int,
        groups: Sequence[GroupTokens],
        experience: ExperienceVL,
        *,
        kl_coef: float,
    ) -> Record:
        """Train critic and policy `max_epochs` times on a batch; the numbers of the updates.

        Raises UserError after too many updates in a row that had to be skipped.
        """
        pending = []
        for role, group in self._trained(step):
            passes = self._passes(groups, experience, ranks=len(group), kl_coef=kl_coef)
            if role == "policy":
                passes = self._with_demonstrations(passes)
            pending.append((role, group, passes, group.start_each("train", passes)))
        record: Record = {}
        for role, group, passes, references in pending:
            by_rank = group.wait(references)
            self.skipped.check(role, step, passes, by_rank[0][1])
            record |= update_record(role, by_rank)
        return record

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain values."""
        feed = self.demonstrations
        return {
            "skipped_updates": self.skipped.state_dict(),
            "demonstrations": None if feed is None else feed.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self.skipped.load_state_dict(state["skipped_updates"])
        if self.demonstrations is not None:
            self.demonstrations.load_state_dict(state["demonstrations"])

    def _trained(self, step: int) -> list[tuple[str, ActorGroup]]:
        """The groups that learn in a step, by the prefix of their metrics."""
        critic = self._workers.critic
        critics = [] if critic is None else [("value", critic)]
        if step <= self._config.trainer.critic_warmup_steps:
            return critics
        return [*critics, ("policy", self._workers.learner)]

    def _passes(
        self,
        groups: Sequence[GroupTokens],
        experience: ExperienceVL,
        *,
        ranks: int,
        kl_coef: float,
    ) -> list[list[RankBatch]]:
        """Each rank's share of all optimizer steps, in order."""
        first = divide_batch(
            groups,
            experience,
            batch_size=self._config.trainer.train_batch_size,
            ranks=ranks,
            kl_coef=kl_coef,
            horizon=self._config.rollout.generate_max_len,
        )
        repeats = self._config.trainer.max_epochs - 1
        again = [[replace(batch, is_first=False) for batch in share] for share in first]
        return [share + rest * repeats for share, rest in zip(first, again, strict=True)]

    def _with_demonstrations(self, passes: list[list[RankBatch]]) -> list[list[RankBatch]]:
        """The same, with each update's own demonstrations where the run has any."""
        if self.demonstrations is None:
            return passes
        drawn = self.demonstrations.next_batches(updates=len(passes[0]), ranks=len(passes))
        return [
            [replace(batch, demonstrations=own) for batch, own in zip(share, added, strict=True)]
            for share, added in zip(passes, drawn, strict=True)
        ]
