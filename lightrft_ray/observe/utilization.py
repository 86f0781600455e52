"""How much of a time workers were busy."""

from collections.abc import Collection, Sequence

from lightrft_ray.observe.timeline import Span


def busy_share(spans: Sequence[Span], workers: Collection[str], start: float, end: float) -> float:
    """The mean over `workers` of the share of [start, end] that their spans cover.

    Spans that overlap count once, and what is outside does not; NaN for no time at all.
    """
    if end <= start or not workers:
        return float("nan")
    covered = sum(
        _covered([(s.start, s.end) for s in spans if s.who == worker], start, end)
        for worker in workers
    )
    return covered / (end - start) / len(workers)


def _covered(intervals: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Length of the union of intervals inside [start, end]."""
    total, reached = 0.0, start
    for first, last in sorted(intervals):
        stop = min(last, end)
        if stop > reached:
            total += stop - max(first, reached)
            reached = stop
    return total
