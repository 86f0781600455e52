"""What a reward source gets of a sample, what it answers, and what every source can do.

A source may be a function, a model or a service elsewhere. A failure is an error beside the sample,
never a number: whoever trains leaves the sample out.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol


@dataclass(frozen=True)
class EncodedMedia:
    """An image or a video as the bytes of its file."""

    data: bytes
    media_type: str
    """Such as image/png or video/mp4."""

    @cached_property
    def content_id(self) -> str:
        """SHA-256 of type and bytes in hexadecimal; computed when it is first asked for."""
        digest = hashlib.sha256(self.media_type.encode() + b"\0")
        digest.update(self.data)
        return digest.hexdigest()


@dataclass(frozen=True)
class RewardSample:
    """One response with all that a reward may look at."""

    sample_id: str
    """Unique among the samples of a call."""
    prompt: str
    """The user's text, without markers of images."""
    messages: Sequence[Mapping[str, object]]
    """The whole chat before the response, as JSON has it; image parts stand for `images`."""
    response: str
    response_token_ids: Sequence[int]
    reference: str
    """The right answer, "" where the data have none."""
    label: str
    """The kind of task, "" where the data have none."""
    images: tuple[EncodedMedia, ...] = ()
    videos: tuple[EncodedMedia, ...] = ()


@dataclass(frozen=True)
class SampleScore:
    """The reward of one sample, or why there is none. Raises ValueError unless it is one of both.

    Numbers are finite. `token_scores` has one entry for each response token, `step_scores` one for
    each step of a process reward; None where the source gives none.
    """

    sample_id: str
    score: float | None
    components: Mapping[str, float] = field(default_factory=dict)
    token_scores: Sequence[float] | None = None
    step_scores: Sequence[float] | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.score is None) != bool(self.error):
            raise ValueError(f"sample {self.sample_id}: a score and an error exclude each other")
        numbers = [
            *(() if self.score is None else (self.score,)),
            *self.components.values(),
            *(self.token_scores or ()),
            *(self.step_scores or ()),
        ]
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"sample {self.sample_id}: a score is no finite number")


def failed(sample_id: str, reason: str) -> SampleScore:
    """The answer for a sample that got no reward."""
    return SampleScore(sample_id, None, error=reason)


class RewardSource(Protocol):
    """Whatever gives rewards."""

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """One answer for each sample, in their order and with their ids; faults are answers."""

    async def close(self) -> None:
        """Let go of connections and processes."""
