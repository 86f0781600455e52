"""Putting the samples of all requests together into calls of the reward."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from lightrft_ray.config.serve_reward import BatchingConfig
from lightrft_ray.rewards.sample import RewardSample, RewardSource, SampleScore, failed
from lightrft_ray.rewards.server.metrics import ServerMetrics


class OverloadedError(Exception):
    """The queue is full: the client is to come back later."""


@dataclass
class _Request:
    """The samples of one client's request, and the parts of its answer as they come."""

    missing: int
    parts: asyncio.Queue[list[SampleScore]] = field(default_factory=asyncio.Queue)
    is_over: bool = False


@dataclass(frozen=True)
class _Entry:
    sample: RewardSample
    request: _Request


class Batcher:
    """A queue before a `RewardSource`. For one event loop; `close` it there."""

    def __init__(
        self, source: RewardSource, config: BatchingConfig, metrics: ServerMetrics
    ) -> None:
        self._source = source
        self._config = config
        self._metrics = metrics
        self._waiting: deque[_Entry] = deque()
        self._held = 0  # waiting or being scored
        self._has_samples = asyncio.Event()
        self._has_full_batch = asyncio.Event()
        self._slots = asyncio.Semaphore(config.max_concurrent_batches)
        self._running: set[asyncio.Task[None]] = set()
        self._collector = asyncio.create_task(self._collect())

    async def score(
        self, samples: Sequence[RewardSample]
    ) -> AsyncGenerator[list[SampleScore], None]:
        """Scores in parts as they come, each sample once. Raises OverloadedError before any.

        When the caller goes away, its samples that still wait are dropped.
        """
        if self._held + len(samples) > self._config.max_queued_samples:
            raise OverloadedError(
                f"{self._held} samples are waiting and {len(samples)} more would exceed "
                f"batching.max_queued_samples {self._config.max_queued_samples}"
            )
        request = _Request(missing=len(samples))
        self._enqueue([_Entry(sample, request) for sample in samples])
        try:
            while request.missing:
                part = await request.parts.get()
                request.missing -= len(part)
                yield part
        finally:
            request.is_over = True

    async def close(self) -> None:
        """Drop what waits, and wait for no running call."""
        self._collector.cancel()
        for task in self._running:
            task.cancel()
        await asyncio.gather(self._collector, *self._running, return_exceptions=True)

    def _enqueue(self, entries: Sequence[_Entry]) -> None:
        self._waiting.extend(entries)
        self._count(len(entries))
        if self._waiting:
            self._has_samples.set()
        if len(self._waiting) >= self._config.max_batch_size:
            self._has_full_batch.set()

    def _count(self, change: int) -> None:
        self._held += change
        self._metrics.queued.set(self._held)

    async def _collect(self) -> None:
        """Start a call whenever there are samples and a free slot."""
        while True:
            await self._has_samples.wait()
            await self._slots.acquire()
            await self._wait_for_more()
            entries = self._take()
            if not entries:
                self._slots.release()
                continue
            task = asyncio.create_task(self._run(entries))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _wait_for_more(self) -> None:
        try:
            async with asyncio.timeout(self._config.max_wait_ms / 1000):
                await self._has_full_batch.wait()
        except TimeoutError:
            return

    def _take(self) -> list[_Entry]:
        """The next batch, without samples of clients that went away."""
        entries: list[_Entry] = []
        while self._waiting and len(entries) < self._config.max_batch_size:
            entry = self._waiting.popleft()
            if entry.request.is_over:
                self._count(-1)
            else:
                entries.append(entry)
        if not self._waiting:
            self._has_samples.clear()
        if len(self._waiting) < self._config.max_batch_size:
            self._has_full_batch.clear()
        return entries

    async def _run(self, entries: Sequence[_Entry]) -> None:
        self._metrics.batches_running.inc()
        self._metrics.batch_size.observe(len(entries))
        start = time.monotonic()
        try:
            scores = await self._call(entries)
        finally:
            self._metrics.batch_seconds.observe(time.monotonic() - start)
            self._metrics.batches_running.dec()
            self._count(-len(entries))
            self._slots.release()
        _hand_out(entries, scores)

    async def _call(self, entries: Sequence[_Entry]) -> list[SampleScore]:
        samples = _with_different_ids([entry.sample for entry in entries])
        try:
            async with asyncio.timeout(self._config.batch_timeout):
                scores = await self._source.score(samples)
        except TimeoutError:
            return _all_failed(samples, f"no reward in {self._config.batch_timeout:g} s")
        except Exception as error:  # a user's reward: anything may come, and is reported
            return _all_failed(samples, f"{type(error).__name__}: {error}")
        if [score.sample_id for score in scores] != [sample.sample_id for sample in samples]:
            return _all_failed(samples, f"{len(scores)} rewards for {len(samples)} samples")
        return scores


def _with_different_ids(samples: list[RewardSample]) -> list[RewardSample]:
    """Samples for one call: clients choose their ids, and may choose the same."""
    if len({sample.sample_id for sample in samples}) == len(samples):
        return samples
    return [replace(sample, sample_id=str(index)) for index, sample in enumerate(samples)]


def _all_failed(samples: Sequence[RewardSample], reason: str) -> list[SampleScore]:
    return [failed(sample.sample_id, reason) for sample in samples]


def _hand_out(entries: Sequence[_Entry], scores: Sequence[SampleScore]) -> None:
    """Give each request its part of a batch, under the client's own ids."""
    parts: dict[int, tuple[_Request, list[SampleScore]]] = {}
    for entry, score in zip(entries, scores, strict=True):
        _, part = parts.setdefault(id(entry.request), (entry.request, []))
        own = entry.sample.sample_id
        part.append(score if score.sample_id == own else replace(score, sample_id=own))
    for request, part in parts.values():
        request.parts.put_nowait(part)
