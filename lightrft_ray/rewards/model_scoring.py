"""Samples before models: cut into micro-batches, in which one bad sample fails alone."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from PIL import Image

from lightrft_ray.config.errors import DataFault
from lightrft_ray.data.media import load_image
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed


class SampleScorer(Protocol):
    """A reward that is computed in this process, and blocks while it is."""

    def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """One answer for each sample, in order; faults are answers."""


class ThreadedSource:
    """A `RewardSource` that computes in a thread, one call at a time, so that others may wait."""

    def __init__(self, scorer: SampleScorer) -> None:
        self._scorer = scorer
        # Of its own: a call that was given up goes on, and the next has to wait for its end.
        self._thread = ThreadPoolExecutor(1, "reward-model")

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._scorer.score, samples)

    async def close(self) -> None:
        """Take no more calls."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def images_of(sample: RewardSample) -> list[Image.Image]:
    """A sample's images in order, RGB. Raises DataFault for those that cannot be used."""
    if sample.videos:
        raise DataFault("reward models here see no videos")
    return [load_image(image.data, Path()) for image in sample.images]


def score_in_batches(
    samples: Sequence[RewardSample],
    batch_size: int,
    score_batch: Callable[[Sequence[RewardSample]], list[SampleScore]],
) -> list[SampleScore]:
    """Scores in the order of the samples, those with images in other batches than those without.

    Processors take batches in which either all texts have images or none has.
    """
    scores: dict[int, SampleScore] = {}
    for sees in (False, True):
        rows = [row for row, sample in enumerate(samples) if bool(sample.images) is sees]
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            scored = _score_or_split([samples[row] for row in part], score_batch)
            scores |= dict(zip(part, scored, strict=True))
    return [scores[row] for row in range(len(samples))]


def _score_or_split(
    samples: Sequence[RewardSample],
    score_batch: Callable[[Sequence[RewardSample]], list[SampleScore]],
) -> list[SampleScore]:
    try:
        return score_batch(samples)
    except Exception as error:  # of a processor or a model: anything may come, and is reported
        if len(samples) == 1:
            return [failed(samples[0].sample_id, f"{type(error).__name__}: {error}")]
    return [score for each in samples for score in _score_or_split([each], score_batch)]
