"""A reward source that counts its failures and times its calls, and that ends in time."""

import asyncio
import time
from collections.abc import Sequence

from lightrft_ray.config import WorkerDied
from lightrft_ray.rewards.remote.source import RemoteSource
from lightrft_ray.rewards.remote.statistics import RemoteFigures, RemoteStatistics
from lightrft_ray.rewards.sample import RewardSample, RewardSource, SampleScore, failed


class MeasuredSource:
    """Any source; an error that it raises, or an answer later than `timeout` s, fails its samples.

    A worker that died fails none: it is replaced, and asked again.
    Times are of whole calls, or of requests where the source is a service.
    """

    def __init__(self, source: RewardSource, timeout: float) -> None:
        self._source = source
        self._timeout = timeout
        self._statistics = RemoteStatistics()

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples."""
        begun = time.monotonic()
        error = None
        try:
            scores = await asyncio.wait_for(self._source.score(samples), self._timeout)
        except WorkerDied:
            raise
        except TimeoutError:
            error = f"not scored within {self._timeout:g} s"
        except Exception as raised:  # whatever a source does, the run decides what it costs
            error = f"{type(raised).__name__}: {raised}"
        if error is not None:
            scores = [failed(sample.sample_id, error) for sample in samples]
        self._statistics.count_request(time.monotonic() - begun, error)
        self._statistics.count_scores(scores)
        return scores

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()

    def figures(self) -> RemoteFigures:
        """How the source has done so far."""
        source = self._source
        return source.figures() if isinstance(source, RemoteSource) else self._statistics.figures()
