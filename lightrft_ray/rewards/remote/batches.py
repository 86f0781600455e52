"""Cutting samples into requests of limited size, with the samples of one prompt together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from lightrft_ray.rewards.sample import EncodedMedia, RewardSample

_TOKEN_BYTES = 6  # an id with its separator, in either protocol
_CHARACTER_BYTES = 3  # of most scripts; the limit is not taken to the last byte
_OVERHEAD_BYTES = 256  # names and lengths of a sample's fields
_BASE64 = 4 / 3


def plan_batches(
    samples: Iterable[RewardSample], max_samples: int, max_bytes: int, *, shares_media: bool
) -> list[list[RewardSample]]:
    """Requests of at most `max_samples` samples and, where a single sample does, `max_bytes`.

    Samples that follow each other with the same media are not split between requests unless the
    limits ask for it, since within a request their media travel once if `shares_media`.
    """
    batches = [_Batch(max_samples, max_bytes, shares_media)]
    for group in _groups(_measured(samples)):
        if not batches[-1].takes(group):
            batches.append(_Batch(max_samples, max_bytes, shares_media))
        if batches[-1].takes(group):
            batches[-1].add(group)
            continue
        for each in group:
            if not batches[-1].takes([each]):
                batches.append(_Batch(max_samples, max_bytes, shares_media))
            batches[-1].add([each])
    return [batch.samples for batch in batches if batch.samples]


@dataclass(frozen=True)
class _Measured:
    """A sample, about what it takes beside its media, and its media by content id."""

    sample: RewardSample
    text_bytes: int
    media: dict[str, EncodedMedia]
    media_ids: tuple[str, ...]


def _measured(samples: Iterable[RewardSample]) -> Iterator[_Measured]:
    messages: dict[int, int] = {}  # those of a prompt are most often one object
    for sample in samples:
        if id(sample.messages) not in messages:
            messages[id(sample.messages)] = len(str(sample.messages))
        media = (*sample.images, *sample.videos)
        ids = tuple(medium.content_id for medium in media)
        length = len(sample.prompt) + 2 * len(sample.response) + len(sample.reference)
        length += len(sample.label) + len(sample.sample_id) + messages[id(sample.messages)]
        tokens = _TOKEN_BYTES * len(sample.response_token_ids)
        size = _CHARACTER_BYTES * length + tokens + _OVERHEAD_BYTES
        yield _Measured(sample, size, dict(zip(ids, media, strict=True)), ids)


def _groups(samples: Iterable[_Measured]) -> Iterator[list[_Measured]]:
    for media, group in groupby(samples, key=lambda each: each.media_ids):
        if media:
            yield list(group)
        else:
            yield from ([each] for each in group)


class _Batch:
    """A request in the making and its size."""

    def __init__(self, max_samples: int, max_bytes: int, shares_media: bool) -> None:
        self.samples: list[RewardSample] = []
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self._shares_media = shares_media
        self._bytes = 0
        self._media: set[str] = set()

    def takes(self, group: Sequence[_Measured]) -> bool:
        """Whether all of a group fit; an empty request takes any one sample."""
        if len(self.samples) + len(group) > self._max_samples:
            return False
        is_alone = not self.samples and len(group) == 1
        return is_alone or self._bytes + self._size(group) <= self._max_bytes

    def add(self, group: Sequence[_Measured]) -> None:
        """Add samples with the same media."""
        self._bytes += self._size(group)
        self._media.update(group[0].media_ids)
        self.samples += [each.sample for each in group]

    def _size(self, group: Sequence[_Measured]) -> int:
        """About the bytes by which a group with the same media makes the request longer."""
        text = sum(each.text_bytes for each in group)
        media = group[0].media
        if not self._shares_media:
            sizes = (len(media[each].data) * _BASE64 + 4 for each in group[0].media_ids)
            return text + len(group) * int(sum(sizes))
        return text + sum(len(m.data) for name, m in media.items() if name not in self._media)
