"""Asking for the scores of one batch until all samples have an answer or there is no more sense."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import aclosing

from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.remote.backoff import full_jitter
from lightrft_ray.rewards.remote.endpoints import Endpoint, Endpoints
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.remote.statistics import RemoteStatistics
from lightrft_ray.rewards.remote.transport import Transport
from lightrft_ray.rewards.remote.validation import check_ids, check_score
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed


class BatchProgress:
    """The samples of a batch that have an answer, and those that have none yet."""

    def __init__(self, samples: Sequence[RewardSample]) -> None:
        self.missing = {sample.sample_id: sample for sample in samples}
        self.answers: dict[str, SampleScore] = {}

    def accept(
        self,
        scores: Sequence[SampleScore],
        asked: dict[str, RewardSample],
        score_range: tuple[float, float] | None,
    ) -> None:
        """Take a part of an answer as a whole. Raises RemoteFault if its ids are wrong."""
        check_ids(scores, asked, self.missing)
        for score in scores:
            sample = self.missing.pop(score.sample_id)
            self.answers[score.sample_id] = check_score(score, sample, score_range)

    def give_up(self, fault: RemoteFault) -> None:
        """Answer all that is missing with the fault."""
        for sample_id in self.missing:
            self.answers[sample_id] = failed(sample_id, str(fault))
        self.missing = {}


class Attempts:
    """The policy for batches: who is asked when, and what is done about a fault.

    Deadlines are times of the running event loop's clock.
    """

    def __init__(
        self, config: RemoteRewardConfig, transport: Transport, statistics: RemoteStatistics
    ) -> None:
        self._config = config
        self._transport = transport
        self._statistics = statistics
        self._endpoints = Endpoints(
            config.addresses, config.remote_breaker_failures, config.remote_breaker_reset
        )
        self._slots = asyncio.Semaphore(config.remote_max_concurrency)
        self._rng = random.Random()

    async def score(
        self, samples: Sequence[RewardSample], deadline: float
    ) -> dict[str, SampleScore]:
        """An answer for each sample, by id; those that got none have the last fault as an error."""
        progress = BatchProgress(samples)
        fault = await self._ask_repeatedly(progress, deadline)
        if fault is not None:
            progress.give_up(fault)
        return progress.answers

    async def _ask_repeatedly(self, progress: BatchProgress, deadline: float) -> RemoteFault | None:
        """The fault on which it stopped; None once nothing is missing."""
        fault: RemoteFault | None = None
        last: Endpoint | None = None
        for attempt in range(1, self._config.remote_max_attempts + 1):
            try:
                if fault is not None:
                    async with asyncio.timeout_at(deadline):
                        await asyncio.sleep(self._pause(attempt - 1, fault))
                last, fault = await self._ask_once(progress, last, deadline)
            except TimeoutError:
                return self._out_of_time(fault)
            except RemoteFault as refusal:
                return refusal
            if fault is None or fault.kind is FaultKind.INVALID:
                return fault
        return fault

    async def _ask_once(
        self, progress: BatchProgress, avoid: Endpoint | None, deadline: float
    ) -> tuple[Endpoint, RemoteFault | None]:
        """Who was asked and how it ended.

        Raises TimeoutError if the turn did not come in time, RemoteFault if all servers refuse.
        """
        async with asyncio.timeout_at(deadline):
            await self._slots.acquire()
        try:
            async with asyncio.timeout_at(deadline):
                endpoint = await self._endpoints.acquire(avoid)
            return endpoint, await self._ask(endpoint, progress, deadline)
        finally:
            self._slots.release()

    async def _ask(
        self, endpoint: Endpoint, progress: BatchProgress, deadline: float
    ) -> RemoteFault | None:
        start = time.monotonic()
        try:
            fault = await self._exchange(endpoint.address, progress, deadline)
        except BaseException:  # cancelled from outside, or a mistake of this client's: no verdict
            self._endpoints.abandon(endpoint)
            raise
        self._endpoints.release(endpoint, fault)
        error = None if fault is None else str(fault)
        self._statistics.count_request(time.monotonic() - start, error)
        return fault

    async def _exchange(
        self, address: str, progress: BatchProgress, deadline: float
    ) -> RemoteFault | None:
        left = deadline - asyncio.get_running_loop().time()
        limit = max(0.0, min(self._config.remote_attempt_timeout, left))
        asked = dict(progress.missing)
        try:
            async with asyncio.timeout(limit):
                exchange = self._transport.exchange(address, list(asked.values()), limit)
                async with aclosing(exchange) as parts:
                    async for part in parts:
                        progress.accept(part, asked, self._config.remote_score_range)
        except TimeoutError:
            return RemoteFault(FaultKind.TRANSIENT, f"{address}: no answer in {limit:.3g} s")
        except RemoteFault as fault:
            return RemoteFault(fault.kind, f"{address}: {fault}", fault.retry_after)
        if progress.missing:
            count = len(asked) - len(progress.missing)
            message = f"{address}: it answered for {count} of {len(asked)} samples"
            return RemoteFault(FaultKind.INVALID, message)
        return None

    def _pause(self, attempt: int, fault: RemoteFault) -> float:
        """Seconds to wait after a fault; nobody is spared by waiting after a refusal."""
        if fault.kind is FaultKind.REFUSED:
            return 0.0
        config = self._config
        jitter = full_jitter(attempt, config.remote_backoff, config.remote_max_backoff, self._rng)
        return (fault.retry_after or 0.0) + jitter

    def _out_of_time(self, fault: RemoteFault | None) -> RemoteFault:
        seconds = f"no answer within remote_deadline, {self._config.remote_deadline:g} s"
        reason = "no server could be asked in time" if fault is None else str(fault)
        return RemoteFault(FaultKind.TRANSIENT, f"{seconds} ({reason})")
