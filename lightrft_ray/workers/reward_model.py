"""Reward models in actors of their own, as a reward source."""

import asyncio
from collections.abc import Sequence

from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from lightrft_ray.config.errors import WorkerDied
from lightrft_ray.rewards.sample import RewardSample, SampleScore


class RewardModelSource:
    """Shares samples out over the actors of one reward model."""

    wants_media = True

    def __init__(self, actors: Sequence[ActorHandle]) -> None:
        self._actors = actors

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples. Raises WorkerDied where an actor is gone."""
        size = -(-len(samples) // len(self._actors))
        shares = [samples[start : start + size] for start in range(0, len(samples), size)]
        pairs = zip(self._actors, shares, strict=False)
        pending = [actor.score.remote(share) for actor, share in pairs]
        try:
            parts: list[list[SampleScore]] = list(await asyncio.gather(*pending))
        except RayActorError as error:
            raise WorkerDied(f"a worker of a reward model died: {error}") from error
        return [score for part in parts for score in part]

    async def close(self) -> None:
        """Nothing is held: the run ends the actors."""
