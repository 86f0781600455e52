"""Scores that are known already, found by what the samples hold."""

import hashlib
import json
from collections import OrderedDict
from dataclasses import replace

from lightrft_ray.rewards.sample import RewardSample, SampleScore


class ScoreCache:
    """The scores of the last `capacity` different samples; failures are not kept."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._scores: OrderedDict[bytes, SampleScore] = OrderedDict()

    def find(self, sample: RewardSample) -> SampleScore | None:
        """The score of a sample of the same content, with this one's id."""
        if self._capacity == 0:
            return None
        key = content_key(sample)
        if key not in self._scores:
            return None
        self._scores.move_to_end(key)
        return replace(self._scores[key], sample_id=sample.sample_id)

    def keep(self, sample: RewardSample, score: SampleScore) -> None:
        """Keep a score; the one that was not asked for the longest makes room."""
        if self._capacity == 0 or score.score is None:
            return
        self._scores[content_key(sample)] = score
        if len(self._scores) > self._capacity:
            self._scores.popitem(last=False)


def content_key(sample: RewardSample) -> bytes:
    """SHA-256 of all that a reward can see of a sample: everything but its id."""
    content = [
        sample.prompt,
        list(sample.messages),
        sample.response,
        list(sample.response_token_ids),
        sample.reference,
        sample.label,
        [image.content_id for image in sample.images],
        [video.content_id for video in sample.videos],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
