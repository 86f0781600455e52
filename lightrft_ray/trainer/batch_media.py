"""The media of whole batches: whose they are, and as models take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL
from lightrft_ray.trainer.media import Medium, SampleMedia, cut_medium, join_media, side_by_side

MEDIA_INPUTS = "media_inputs"
"""Where the `info` of experience keeps what `SamplesVL.media_inputs` has, an entry a sample."""

_PER_IMAGE = "image_sizes"  # models that take it have an entry of pixels for each image


def media_of(samples: SamplesVL, batch_size: int) -> list[SampleMedia]:
    """The media of each of a batch's samples, as views."""
    none = [0] * batch_size
    owners = _Owners(
        samples.image_num or none,
        samples.video_num or none,
        samples.media_inputs or [{} for _ in none],
        samples.prompts,
    )
    return _cut(samples, owners)


def media_of_experience(experience: ExperienceVL) -> list[SampleMedia]:
    """The same of experience, whose `info` holds `image_num`, `video_num` and `media_inputs`."""
    info = experience.info or {}
    none = [0] * len(experience.sequences)
    owners = _Owners(
        list(info.get("image_num") or none),
        list(info.get("video_num") or none),
        info.get(MEDIA_INPUTS) or [{} for _ in none],
        info.get("prompts"),
    )
    return _cut(experience, owners)


class _Owners(NamedTuple):
    """The samples of a batch: how many media each has, its further inputs, its prompt."""

    image_num: Sequence[int]
    video_num: Sequence[int]
    extras: Sequence[Mapping[str, Tensor]]
    prompts: Sequence[str] | None


def _cut(batch: SamplesVL | ExperienceVL, owners: _Owners) -> list[SampleMedia]:
    images = Medium(0, batch.pixel_values, batch.image_grid_thws)
    videos = Medium(0, batch.pixel_values_videos, batch.video_grid_thws)
    cut_images = cut_medium(
        images,
        owners.image_num,
        prompts=owners.prompts,
        per_sample=_is_per_sample(images, owners.extras),
    )
    cut_videos = cut_medium(videos, owners.video_num, name="video", prompts=owners.prompts)
    return [SampleMedia(*own) for own in zip(cut_images, cut_videos, owners.extras, strict=True)]


def _is_per_sample(images: Medium, extras: Sequence[Mapping[str, Tensor]]) -> bool:
    """Whether a sample has one entry of pixels for all its images, (tiles, C, H, W)."""
    if images.pixels is None or images.pixels.dim() != 5 or images.grids is not None:
        return False
    return not any(_PER_IMAGE in own for own in extras)


def batch_fields(parts: Sequence[SampleMedia]) -> dict[str, Tensor | None]:
    """The four media fields of `SamplesVL` and `ExperienceVL` for samples side by side."""
    images = join_media(part.images for part in parts)
    videos = join_media((part.videos for part in parts), name="video")
    return {
        "pixel_values": images.pixels,
        "image_grid_thws": images.grids,
        "pixel_values_videos": videos.pixels,
        "video_grid_thws": videos.grids,
    }


def batch_extras(parts: Sequence[SampleMedia]) -> list[dict[str, Tensor]] | None:
    """The `media_inputs` of samples side by side."""
    extras = [dict(part.extras) for part in parts]
    return extras if any(extras) else None


def model_inputs(batch: SamplesVL | ExperienceVL) -> dict[str, Tensor]:
    """A batch's media as actors and critics take them; those that it has not are left out."""
    named = {
        "pixel_values": batch.pixel_values,
        "image_grid_thw": batch.image_grid_thws,
        "pixel_values_videos": batch.pixel_values_videos,
        "video_grid_thw": batch.video_grid_thws,
    }
    given = {name: value for name, value in named.items() if value is not None}
    return given | _joined_extras(_extras_of(batch) or [])


def _extras_of(batch: SamplesVL | ExperienceVL) -> Sequence[Mapping[str, Tensor]] | None:
    if isinstance(batch, SamplesVL):
        return batch.media_inputs
    return (batch.info or {}).get(MEDIA_INPUTS)


def _joined_extras(extras: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Each input of all samples that have it; masks of fewer tiles are padded as the pixels are."""
    names = sorted({name for own in extras for name in own})
    return {
        name: side_by_side(
            [own[name] for own in extras if name in own],
            name,
            pads=name == "pixel_attention_mask",
        )
        for name in names
    }
