"""How a service does: the share of failed samples, and how long its answers take."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lightrft_ray.rewards.sample import SampleScore

_KEPT = 10_000


@dataclass(frozen=True)
class RemoteFigures:
    """Figures of a service. Times are of single requests that were answered, in seconds.

    Times are None as long as there are none.
    """

    samples: int
    failed_fraction: float
    requests: int
    failed_requests: int
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None
    last_error: str | None


class RemoteStatistics:
    """Counts since the start, and the times of the last 10,000 requests."""

    def __init__(self) -> None:
        self._latencies: deque[float] = deque(maxlen=_KEPT)
        self._samples = 0
        self._failed = 0
        self._requests = 0
        self._failed_requests = 0
        self._last_error: str | None = None

    def count_request(self, seconds: float, error: str | None) -> None:
        """A request has ended; `error` is None if it was answered."""
        self._requests += 1
        if error is None:
            self._latencies.append(seconds)
        else:
            self._failed_requests += 1
            self._last_error = error

    def count_scores(self, scores: Sequence[SampleScore]) -> None:
        """Samples have their final answer."""
        errors = [score.error for score in scores if score.error is not None]
        self._samples += len(scores)
        self._failed += len(errors)
        if errors:
            self._last_error = errors[-1]

    def figures(self) -> RemoteFigures:
        """All figures."""
        latencies = sorted(self._latencies)
        return RemoteFigures(
            samples=self._samples,
            failed_fraction=self._failed / self._samples if self._samples else 0.0,
            requests=self._requests,
            failed_requests=self._failed_requests,
            latency_p50=_percentile(latencies, 50),
            latency_p95=_percentile(latencies, 95),
            latency_p99=_percentile(latencies, 99),
            last_error=self._last_error,
        )


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least `percent` of all do not exceed (nearest rank)."""
    if not ordered:
        return None
    return ordered[-(-len(ordered) * percent // 100) - 1]
