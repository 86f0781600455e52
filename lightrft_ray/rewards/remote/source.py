"""Rewards from a service elsewhere, under one policy whatever the protocol.

Samples go out in batches, a limited number at a time, to the least busy server that is well. Faults
that may pass are tried again within the deadline, for those samples that have no answer yet. Who
has none in the end gets the last fault as an error: a reward is never invented.
"""

import asyncio
from collections.abc import Sequence

from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.remote.attempts import Attempts
from lightrft_ray.rewards.remote.batches import plan_batches
from lightrft_ray.rewards.remote.cache import ScoreCache
from lightrft_ray.rewards.remote.start_check import check_servers
from lightrft_ray.rewards.remote.statistics import RemoteFigures, RemoteStatistics
from lightrft_ray.rewards.remote.transport import Transport
from lightrft_ray.rewards.sample import RewardSample, SampleScore

_MB = 2**20
_MESSAGE_SHARE = 0.9  # of the limit, as the size of a request is only estimated


class RemoteSource:
    """A `RewardSource` over a transport. For one event loop, in which it is to be closed."""

    def __init__(self, config: RemoteRewardConfig, transport: Transport) -> None:
        self._config = config
        self._transport = transport
        self._statistics = RemoteStatistics()
        self._attempts = Attempts(config, transport, self._statistics)
        self._cache = ScoreCache(config.remote_cache_size)

    async def check(self) -> None:
        """UserError for a server that refuses this client, and if none can be reached."""
        await check_servers(self._config, self._transport)

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples, within `remote_deadline`.

        Raises ValueError if two samples have one id.
        """
        cached = {each.sample_id: self._cache.find(each) for each in samples}
        if len(cached) != len(samples):
            raise ValueError("two samples of a call have one id")
        unknown = [each for each in samples if cached[each.sample_id] is None]
        scores = {name: score for name, score in cached.items() if score is not None}
        scores |= await self._ask(unknown)
        for sample in unknown:
            self._cache.keep(sample, scores[sample.sample_id])
        ordered = [scores[each.sample_id] for each in samples]
        self._statistics.count_scores(ordered)
        return ordered

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def figures(self) -> RemoteFigures:
        """How the service has done so far."""
        return self._statistics.figures()

    async def _ask(self, samples: Sequence[RewardSample]) -> dict[str, SampleScore]:
        deadline = asyncio.get_running_loop().time() + self._config.remote_deadline
        batches = plan_batches(
            samples,
            self._config.remote_batch_size,
            int(self._config.remote_max_message_mb * _MB * _MESSAGE_SHARE),
            shares_media=self._transport.shares_media,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._attempts.score(b, deadline)) for b in batches]
        return {name: score for task in tasks for name, score in task.result().items()}
