"""What a look at every prompt of a source finds: lengths, sizes of images, faults, repetitions."""

import hashlib
import json
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lightrft_ray.config.errors import DataFault
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.decoding import DecodedMedia, load_media
from lightrft_ray.data.processing import PromptEncoder
from lightrft_ray.data.prompt import Prompt
from lightrft_ray.data.readers.rows import BadRow
from lightrft_ray.data.reading import ReadSource

_BINS = 8
_BAR = 40  # characters of the longest
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAMED = re.compile("^(image|video|prompt) .*?: ")
_NUMBER = re.compile(r"\d+(?:[.x]\d+)*")


@dataclass
class Findings:
    """Of one source."""

    lengths: "array[int]" = field(default_factory=lambda: array("Q"))  # tokens, with the media's
    pixels: "array[int]" = field(default_factory=lambda: array("Q"))  # of each image
    faults: list[BadRow] = field(default_factory=list)  # prompts that the run would skip
    repeated: int = 0  # prompts with the messages and media of an earlier one


@dataclass(frozen=True)
class Sample:
    """A prompt with its media, as it is shown."""

    prompt: Prompt
    media: DecodedMedia
    token_ids: Sequence[int]


@dataclass(frozen=True)
class Kind:
    """Bad rows of one kind of reason."""

    reason: str
    rows: Sequence[BadRow]


def examine(
    read: ReadSource, encoder: PromptEncoder, settings: MediaConfig, shown: int
) -> tuple[Findings, list[Sample]]:
    """Decode and encode every prompt as a generator does; and `shown` of the usable ones."""
    findings = Findings()
    usable: array[int] = array("Q")  # places
    seen: set[bytes] = set()
    for place, prompt in enumerate(read.prompts):
        digest = _digest(prompt)
        findings.repeated += digest in seen
        seen.add(digest)
        try:
            media = load_media(prompt, settings)
            findings.pixels.extend(image.width * image.height for image in media.images)
            encoded = encoder.encode(prompt, media.images, media.videos)
        except DataFault as fault:
            findings.faults.append(BadRow(read.numbers[place], str(fault)))
            continue
        findings.lengths.append(len(encoded.expanded_ids))
        usable.append(place)
    chosen = [usable[len(usable) * rank // shown] for rank in range(shown)] if usable else []
    prompts = [read.prompts[place] for place in dict.fromkeys(chosen)]
    return findings, [
        Sample(prompt, load_media(prompt, settings), encoder.token_ids(prompt))
        for prompt in prompts
    ]


def kinds(rows: Iterable[BadRow]) -> list[Kind]:
    """Bad rows whose reasons differ in names and numbers alone, the most frequent kind first."""
    by_kind: dict[str, list[BadRow]] = defaultdict(list)
    for row in rows:
        by_kind[_kind(row.reason)].append(row)
    groups = [Kind(reason, group) for reason, group in by_kind.items()]
    return sorted(groups, key=lambda kind: -len(kind.rows))


def histogram(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Bins of equal width: the lowest and highest value each may hold, and how many it does."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = max(1, -(-(high - low + 1) // _BINS))
    counts: dict[int, int] = defaultdict(int)
    for value in values:
        counts[(value - low) // width] += 1
    last = (high - low) // width
    return [
        (low + place * width, min(high, low + (place + 1) * width - 1), counts[place])
        for place in range(last + 1)
    ]


def bars(values: Sequence[int]) -> list[str]:
    """A histogram as lines of text."""
    bins = histogram(values)
    most = max((count for _, _, count in bins), default=1)
    labels = [str(low) if low == high else f"{low} to {high}" for low, high, _ in bins]
    width = max((len(label) for label in labels), default=0)
    return [
        f"{label:>{width}}  {count:>7}  {'█' * -(-count * _BAR // most)}"
        for label, (_, _, count) in zip(labels, bins, strict=True)
    ]


def _kind(reason: str) -> str:
    """A reason without what differs from row to row: names, places and numbers."""
    reason = _NAMED.sub(r"\1 …: ", reason)
    return _NUMBER.sub("#", _QUOTED.sub("'…'", reason))


def _digest(prompt: Prompt) -> bytes:
    content = json.dumps([prompt.messages, prompt.images, prompt.videos], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=12).digest()
