"""Cutting samples into requests of limited size, with the samples of one prompt together."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from lightrft_ray.rewards.sample import EncodedMedia, RewardSample

_TOKEN_BYTES = 6  # an id with its separator, in either protocol
_OVERHEAD_BYTES = 256  # names and lengths of a sample's fields
_BASE64 = 4 / 3


def plan_batches(
    samples: Iterable[RewardSample], max_samples: int, max_bytes: int, *, shares_media: bool
) -> list[list[RewardSample]]:
    """Requests of at most `max_samples` samples and, where a single sample does, `max_bytes`.

    Samples that follow each other with the same media are not split between requests unless the
    limits ask for it, since within a request their media travel once if `shares_media`.
    """
    batches: list[_Batch] = []
    for group in _groups(samples):
        if not batches or not batches[-1].takes_all(group, max_samples, max_bytes):
            batches.append(_Batch(shares_media))
        for sample in group:
            if not batches[-1].takes_all([sample], max_samples, max_bytes):
                batches.append(_Batch(shares_media))
            batches[-1].add(sample)
    return [batch.samples for batch in batches if batch.samples]


class _Batch:
    """A request in the making and its size."""

    def __init__(self, shares_media: bool) -> None:
        self.samples: list[RewardSample] = []
        self.bytes = 0
        self._shares_media = shares_media
        self._media: set[str] = set()

    def takes_all(self, samples: Sequence[RewardSample], max_samples: int, max_bytes: int) -> bool:
        """Whether all fit; an empty request takes any one sample."""
        if len(self.samples) + len(samples) > max_samples:
            return False
        total = self.bytes + sum(map(_text_bytes, samples)) + self._new_media_bytes(samples)
        return total <= max_bytes or (not self.samples and len(samples) == 1)

    def add(self, sample: RewardSample) -> None:
        self.bytes += _text_bytes(sample) + self._new_media_bytes([sample])
        self._media.update(medium.content_id for medium in _media(sample))
        self.samples.append(sample)

    def _new_media_bytes(self, samples: Sequence[RewardSample]) -> int:
        media = [medium for sample in samples for medium in _media(sample)]
        if not self._shares_media:
            return sum(int(len(medium.data) * _BASE64) + 4 for medium in media)
        new = {m.content_id: len(m.data) for m in media if m.content_id not in self._media}
        return sum(new.values())


def _groups(samples: Iterable[RewardSample]) -> Iterator[list[RewardSample]]:
    for media, group in groupby(samples, key=lambda s: tuple(m.content_id for m in _media(s))):
        if media:
            yield list(group)
        else:
            yield from ([sample] for sample in group)


def _media(sample: RewardSample) -> tuple[EncodedMedia, ...]:
    return (*sample.images, *sample.videos)


def _text_bytes(sample: RewardSample) -> int:
    """About what a sample takes beside its media; JSON writes six bytes for a foreign letter."""
    texts = [sample.prompt, sample.response, sample.reference, sample.label, sample.sample_id]
    texts += [str(message) for message in sample.messages]
    length = sum(len(text) if text.isascii() else 6 * len(text) for text in texts)
    return length + _TOKEN_BYTES * len(sample.response_token_ids) + _OVERHEAD_BYTES
