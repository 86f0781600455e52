"""Which images and videos, and which of their pixels, belong to which sample.

A batch holds the media of its samples one behind another. In Qwen-VL style an image or video with
the grid (t, h, w) owns t · h · w rows of pixels; without grids, as in LLaVA or Gemma 3, each image
owns one entry (C, H, W). Cutting gives views and joining a single piece gives it back, so that
samples of one prompt share its pixels until a model needs them side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL

Range = tuple[int, int]

# The fields of a batch that hold counts, grids and pixels.
_FIELDS = {
    "image": ("image_num", "image_grid_thws", "pixel_values"),
    "video": ("video_num", "video_grid_thws", "pixel_values_videos"),
}


@dataclass(frozen=True, eq=False)
class Medium:
    """Images, or videos, of one sample or of a batch.

    `pixels` (rows, …); `grids` (count, 3) in patches, or None where each has one row of pixels.
    """

    count: int = 0
    pixels: Tensor | None = None
    grids: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SampleMedia:
    """All media of one sample."""

    images: Medium = Medium()
    videos: Medium = Medium()


@dataclass(frozen=True)
class MediaRanges:
    """Per sample [start, end) of its grids and of its rows of pixels."""

    media: list[Range]
    pixels: list[Range]

    def token_counts(self, spatial_merge_size: int) -> list[int]:
        """Placeholder tokens of each sample, where a token stands for merge² rows of pixels."""
        return [(end - start) // spatial_merge_size**2 for start, end in self.pixels]


def media_ranges(
    counts: Sequence[int],
    grids: Tensor | None,
    pixel_rows: int,
    *,
    name: str = "image",
    prompts: Sequence[str] | None = None,
) -> MediaRanges:
    """Where each sample's media lie, from its `counts` and the batch's `grids` (media, 3).

    Raises ValueError for counts, grids and pixels that do not fit together: names the field, the
    prompt of the first sample without its share, and both numbers.
    """
    counted, gridded, pixelled = _FIELDS[name]
    media = _ranges(counts)
    if grids is None:
        _check(media, pixel_rows, counted, pixelled, prompts)
        return MediaRanges(media, media)
    _check(media, len(grids), counted, gridded, prompts)
    ends = [0, *grids.prod(dim=1).cumsum(0).tolist()]
    pixels = [(ends[start], ends[end]) for start, end in media]
    _check(pixels, pixel_rows, gridded, pixelled, prompts)
    return MediaRanges(media, pixels)


def _ranges(counts: Sequence[int]) -> list[Range]:
    return list(pairwise(accumulate(counts, initial=0)))


def _check(
    ranges: Sequence[Range], held: int, counted: str, holder: str, prompts: Sequence[str] | None
) -> None:
    needed = ranges[-1][1] if ranges else 0
    if needed == held:
        return
    short = next((i for i, (_, end) in enumerate(ranges) if end > held), len(ranges) - 1)
    who = f"sample {short}" if prompts is None else f"sample {short} of prompt {prompts[short]}"
    raise ValueError(f"{counted}: up to {who} it counts {needed} rows, {holder} has {held}")


def cut_medium(
    batch: Medium,
    counts: Sequence[int],
    *,
    name: str = "image",
    prompts: Sequence[str] | None = None,
) -> list[Medium]:
    """Each sample's part of a batch's images or videos, as views; errors of `media_ranges`."""
    rows = 0 if batch.pixels is None else len(batch.pixels)
    grids = batch.grids
    ranges = media_ranges(counts, grids, rows, name=name, prompts=prompts)
    if batch.pixels is None:
        return [Medium() for _ in counts]
    return [
        Medium(
            count,
            batch.pixels[pixel_start:pixel_end],
            None if grids is None else grids[start:end],
        )
        if count
        else Medium()
        for count, (start, end), (pixel_start, pixel_end) in zip(
            counts, ranges.media, ranges.pixels, strict=True
        )
    ]


def join_media(parts: Iterable[Medium]) -> Medium:
    """The parts one behind another; copies pixels only where there are several parts."""
    used = [part for part in parts if part.count]
    return Medium(
        sum(part.count for part in used),
        _joined([part.pixels for part in used]),
        _joined([part.grids for part in used]),
    )


def _joined(tensors: Sequence[Tensor | None]) -> Tensor | None:
    given = [tensor for tensor in tensors if tensor is not None]
    if len(given) < len(tensors):
        if given:
            raise ValueError("media with grids and media without cannot share a batch")
        return None
    if len(given) > 1:
        return torch.cat(given)
    return given[0] if given else None


def media_of(samples: SamplesVL, batch_size: int) -> list[SampleMedia]:
    """The media of each of a batch's samples, as views."""
    images = Medium(0, samples.pixel_values, samples.image_grid_thws)
    videos = Medium(0, samples.pixel_values_videos, samples.video_grid_thws)
    none = [0] * batch_size
    counts = (samples.image_num or none, samples.video_num or none)
    return _paired(images, videos, *counts, samples.prompts)


def media_of_experience(experience: ExperienceVL) -> list[SampleMedia]:
    """The same of experience, whose counts are `image_num` and `video_num` in its `info`."""
    info = experience.info or {}
    images = Medium(0, experience.pixel_values, experience.image_grid_thws)
    videos = Medium(0, experience.pixel_values_videos, experience.video_grid_thws)
    none = [0] * len(experience.sequences)
    counts = [list(info.get(f"{name}_num") or none) for name in ("image", "video")]
    return _paired(images, videos, counts[0], counts[1], info.get("prompts"))


def _paired(
    images: Medium,
    videos: Medium,
    image_num: Sequence[int],
    video_num: Sequence[int],
    prompts: Sequence[str] | None,
) -> list[SampleMedia]:
    both = (
        cut_medium(images, image_num, name="image", prompts=prompts),
        cut_medium(videos, video_num, name="video", prompts=prompts),
    )
    return [SampleMedia(*pair) for pair in zip(*both, strict=True)]


def batch_fields(parts: Sequence[SampleMedia]) -> dict[str, Tensor | None]:
    """The four media fields of `SamplesVL` and `ExperienceVL` for samples side by side."""
    images = join_media(part.images for part in parts)
    videos = join_media(part.videos for part in parts)
    return {
        "pixel_values": images.pixels,
        "image_grid_thws": images.grids,
        "pixel_values_videos": videos.pixels,
        "video_grid_thws": videos.grids,
    }


def model_inputs(batch: SamplesVL | ExperienceVL) -> dict[str, Tensor]:
    """A batch's media as actors and critics take them; those that it has not are left out."""
    named = {
        "pixel_values": batch.pixel_values,
        "image_grid_thw": batch.image_grid_thws,
        "pixel_values_videos": batch.pixel_values_videos,
        "video_grid_thw": batch.video_grid_thws,
    }
    return {name: value for name, value in named.items() if value is not None}


def shared_with(previous: SampleMedia | None, media: SampleMedia) -> SampleMedia:
    """`media` with the tensors of the sample before it, where they hold the same."""
    if previous is None:
        return media
    return SampleMedia(
        previous.images if _equal(previous.images, media.images) else media.images,
        previous.videos if _equal(previous.videos, media.videos) else media.videos,
    )


def _equal(one: Medium, other: Medium) -> bool:
    if one.count != other.count or one.pixels is None or other.pixels is None:
        return False
    if one.grids is not None and other.grids is not None:
        is_shaped_alike = torch.equal(one.grids, other.grids)
    else:
        is_shaped_alike = one.grids is other.grids
    return is_shaped_alike and torch.equal(one.pixels, other.pixels)


def held_bytes(parts: Iterable[SampleMedia]) -> int:
    """Bytes of memory that the pixels take, what samples share counted once."""
    pixels = [medium.pixels for part in parts for medium in (part.images, part.videos)]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in pixels
        if tensor is not None
    }
    return sum(storages.values())
