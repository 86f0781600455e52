"""Images and videos of samples: cut from a batch, joined, and shared by the samples of a prompt.

A batch holds the media of its samples one behind another. In Qwen-VL style an image or video with
the grid (t, h, w) owns t · h · w rows of pixels; without grids, as in LLaVA or Gemma 3, each owns
one entry, (C, H, W) or, cut into tiles as in LLaVA-NeXT, (tiles, C, H, W). In Idefics 3 style a
*sample* owns an entry, with the tiles of all its images. Cutting gives views and joining a single
piece gives it back, so that samples of one prompt share its pixels until a model needs them side by
side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor

from lightrft_ray.models.rows import concatenate_padded

Range = tuple[int, int]
Kind = Literal["image", "video"]

# The fields of a batch that hold counts, grids and pixels.
_FIELDS = {
    "image": ("image_num", "image_grid_thws", "pixel_values"),
    "video": ("video_num", "video_grid_thws", "pixel_values_videos"),
}
_TILED = 5  # dimensions of (entries, tiles, C, H, W)


@dataclass(frozen=True, eq=False)
class Medium:
    """Images, or videos, of one sample or of a batch.

    `pixels` (rows, …); `grids` (count, 3) in patches, or None where there are entries of pixels.
    """

    count: int = 0
    pixels: Tensor | None = None
    grids: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SampleMedia:
    """All media of one sample; `extras` are the model's further inputs of them, by name."""

    images: Medium = Medium()
    videos: Medium = Medium()
    extras: Mapping[str, Tensor] = field(default_factory=dict)


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
    name: Kind = "image",
    prompts: Sequence[str] | None = None,
    per_sample: bool = False,
) -> MediaRanges:
    """Where each sample's media lie, from its `counts` and the batch's `grids` (media, 3).

    Without grids a medium, or `per_sample` a sample that has some, owns one row of pixels. Raises
    ValueError for counts, grids and pixels that do not fit together: names the field, the prompt of
    the first sample without its share, and both numbers.
    """
    counted, gridded, pixelled = _FIELDS[name]
    _check_counts(counts, counted, prompts)
    media = _ranges(counts)
    if grids is None:
        rows = media if not per_sample else _ranges(_entries(counts, pixel_rows))
        _check(rows, pixel_rows, counted, pixelled, prompts)
        return MediaRanges(media, rows)
    _check_grids(grids, gridded)
    _check(media, len(grids), counted, gridded, prompts)
    ends = [0, *grids.prod(dim=1).cumsum(0).tolist()]
    pixels = [(ends[start], ends[end]) for start, end in media]
    _check(pixels, pixel_rows, gridded, pixelled, prompts)
    return MediaRanges(media, pixels)


def _entries(counts: Sequence[int], pixel_rows: int) -> list[int]:
    """Entries of pixels of each sample, where those without images may have an empty one."""
    if pixel_rows == len(counts):
        return [1] * len(counts)
    return [min(count, 1) for count in counts]


def _ranges(counts: Sequence[int]) -> list[Range]:
    return list(pairwise(accumulate(counts, initial=0)))


def _check_counts(counts: Sequence[int], counted: str, prompts: Sequence[str] | None) -> None:
    for row, count in enumerate(counts):
        if count < 0:
            raise ValueError(f"{counted}: {_name(row, prompts)} has {count}, fewer than 0")


def _check_grids(grids: Tensor, gridded: str) -> None:
    if grids.dim() != 2 or grids.shape[1] != 3:
        raise ValueError(f"{gridded} is {tuple(grids.shape)}: a grid is 3 numbers, (t, h, w)")


def _check(
    ranges: Sequence[Range], held: int, counted: str, holder: str, prompts: Sequence[str] | None
) -> None:
    needed = ranges[-1][1] if ranges else 0
    if needed == held:
        return
    short = next((i for i, (_, end) in enumerate(ranges) if end > held), len(ranges) - 1)
    who = _name(short, prompts)
    raise ValueError(f"{counted}: up to {who} it counts {needed} rows, {holder} has {held}")


def _name(row: int, prompts: Sequence[str] | None) -> str:
    return f"sample {row}" if prompts is None else f"sample {row} of prompt {prompts[row]}"


def cut_medium(
    batch: Medium,
    counts: Sequence[int],
    *,
    name: Kind = "image",
    prompts: Sequence[str] | None = None,
    per_sample: bool = False,
) -> list[Medium]:
    """Each sample's part of a batch's images or videos, as views; arguments of `media_ranges`."""
    rows = 0 if batch.pixels is None else len(batch.pixels)
    grids = batch.grids
    ranges = media_ranges(counts, grids, rows, name=name, prompts=prompts, per_sample=per_sample)
    if batch.pixels is None:
        return [Medium() for _ in counts]
    return [
        Medium(
            count,
            _own_pixels(batch.pixels[pixel_start:pixel_end], name),
            None if grids is None else grids[start:end],
        )
        if count
        else Medium()
        for count, (start, end), (pixel_start, pixel_end) in zip(
            counts, ranges.media, ranges.pixels, strict=True
        )
    ]


def _own_pixels(pixels: Tensor, name: Kind) -> Tensor:
    """A view without the tiles that `join_media` put behind; models know them by their zeros, too.

    Nothing is put behind the frames of videos.
    """
    if name == "video" or pixels.dim() != _TILED:
        return pixels
    used = pixels.flatten(2).any(dim=2).any(dim=0).nonzero()
    return pixels[:, : int(used[-1]) + 1] if len(used) else pixels


def join_media(parts: Iterable[Medium], *, name: Kind = "image") -> Medium:
    """The parts one behind another; copies pixels only where there are several parts.

    Images of fewer tiles are padded with tiles of 0. Raises ValueError, which names the field and
    both shapes, for media that cannot share a batch.
    """
    used = [part for part in parts if part.count]
    _, gridded, pixelled = _FIELDS[name]
    pixels = [part.pixels for part in used]
    is_tiled = name == "image" and any(p is not None and p.dim() == _TILED for p in pixels)
    return Medium(
        sum(part.count for part in used),
        _joined(pixels, pixelled, pads=is_tiled),
        _joined([part.grids for part in used], gridded, pads=False),
    )


def _joined(tensors: Sequence[Tensor | None], name: str, *, pads: bool) -> Tensor | None:
    given = [tensor for tensor in tensors if tensor is not None]
    if len(given) < len(tensors):
        if given:
            raise ValueError(f"{name}: media with and media without cannot share a batch")
        return None
    return side_by_side(given, name, pads=pads) if given else None


def side_by_side(tensors: Sequence[Tensor], name: str, *, pads: bool) -> Tensor:
    """(Σ rows, …); one tensor as it is. With `pads` 0 is put behind in the other dimensions."""
    if len(tensors) == 1:
        return tensors[0]
    if pads:
        return concatenate_padded(tensors)
    for tensor in tensors:
        if tensor.shape[1:] != tensors[0].shape[1:]:
            shapes = f"{tuple(tensors[0].shape)} and {tuple(tensor.shape)}"
            raise ValueError(f"{name}: {shapes} cannot share a batch")
    return torch.cat(list(tensors))


def shared_with(previous: SampleMedia | None, media: SampleMedia) -> SampleMedia:
    """`media` with the tensors of the sample before it, where they hold the same."""
    if previous is None:
        return media
    return SampleMedia(
        previous.images if _equal(previous.images, media.images) else media.images,
        previous.videos if _equal(previous.videos, media.videos) else media.videos,
        previous.extras if _same_extras(previous.extras, media.extras) else media.extras,
    )


def _equal(one: Medium, other: Medium) -> bool:
    if one.count != other.count or one.pixels is None or other.pixels is None:
        return False
    if one.grids is not None and other.grids is not None:
        is_shaped_alike = torch.equal(one.grids, other.grids)
    else:
        is_shaped_alike = one.grids is other.grids
    return is_shaped_alike and torch.equal(one.pixels, other.pixels)


def _same_extras(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def held_bytes(parts: Iterable[SampleMedia]) -> int:
    """Bytes of memory that the pixels take, what samples share counted once."""
    pixels = [medium.pixels for part in parts for medium in (part.images, part.videos)]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in pixels
        if tensor is not None
    }
    return sum(storages.values())
