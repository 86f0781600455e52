"""Experience cut into single samples without padding, and batches made of any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.trainer.batch_media import (
    MEDIA_INPUTS,
    batch_extras,
    batch_fields,
    media_of_experience,
)
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.media import SampleMedia
from lightrft_ray.trainer.sample_checks import check_shape

PER_ACTION = (
    "action_log_probs",
    "base_action_log_probs",
    "values",
    "returns",
    "advantages",
    "action_mask",
    "kl",
    "action_entropy",
)
"""Fields of shape (B, A)."""


@dataclass(frozen=True, eq=False)
class ExperienceRow:
    """One sample: P prompt tokens, L response tokens.

    `tokens` (P + L,), `per_action` (L,) by field, `info` the sample's own values; what the batch's
    `info` has in `media_inputs` is part of `media`.
    """

    tokens: Tensor
    response_length: int
    per_action: Mapping[str, Tensor]
    info: Mapping[str, object]
    media: SampleMedia
    raw_images: Sequence[Image.Image] | None


def split_experience(
    experience: ExperienceVL, media: Sequence[SampleMedia] | None = None
) -> list[ExperienceRow]:
    """The samples of a batch; of `info`, lists and tensors of B entries are cut, too.

    Pixels are views of the batch's, or `media` tells each sample's where the batch has none.
    Raises ValueError for fields that do not fit together.
    """
    if experience.action_mask is None or experience.attention_mask is None:
        raise ValueError("experience needs an action_mask and an attention_mask to be cut")
    size, width = experience.action_mask.shape
    layout = SequenceLayout.of_mask(experience.attention_mask, width)
    tokens = layout.pack(experience.sequences).split(layout.total_lengths.tolist())
    lengths = layout.response_lengths.tolist()
    info = {k: value for k, value in (experience.info or {}).items() if k != MEDIA_INPUTS}
    prompts = info.get("prompts")
    per_action = _per_action(experience, prompts)
    if media is None:
        media = media_of_experience(experience)
    elif len(media) != size:
        check_shape("media", (len(media),), (size,), prompts)
    images = _images_of_samples(experience.raw_images, media)
    return [
        ExperienceRow(
            tokens[row],
            lengths[row],
            {name: values[row, : lengths[row]] for name, values in per_action.items()},
            {name: _entry(name, value, row, size) for name, value in info.items()},
            media[row],
            images[row],
        )
        for row in range(size)
    ]


def _per_action(experience: ExperienceVL, prompts: Sequence[str] | None) -> dict[str, Tensor]:
    """The (B, A) fields that are there."""
    fields = {name: getattr(experience, name) for name in PER_ACTION}
    given = {name: value for name, value in fields.items() if value is not None}
    shape = given["action_mask"].shape
    for name, value in given.items():
        check_shape(name, value.shape, shape, prompts)
    return given


def _entry(name: str, value: object, row: int, size: int) -> object:
    if isinstance(value, Tensor) and value.dim() > 0 and len(value) == size:
        return value[row]
    if isinstance(value, list) and len(value) == size:
        return value[row]
    held = f"has {len(value)}" if isinstance(value, Tensor | list) else f"is {value!r}"
    raise ValueError(f"info[{name!r}] {held}: it must have an entry for each of {size} samples")


def _images_of_samples(
    images: Sequence[Image.Image] | None, media: Sequence[SampleMedia]
) -> list[Sequence[Image.Image] | None]:
    if images is None:
        return [None] * len(media)
    counts = [each.images.count for each in media]
    if sum(counts) != len(images):
        raise ValueError(f"image_num counts {sum(counts)} images, raw_images has {len(images)}")
    remaining = iter(images)
    return [[next(remaining) for _ in range(count)] for count in counts]


def join_rows(rows: Sequence[ExperienceRow], pad_token_id: int) -> ExperienceVL:
    """A batch of the samples, padded to the longest prompt and the longest response.

    Raises ValueError where samples differ in what they have.
    """
    lengths = torch.tensor([row.response_length for row in rows])
    prompts = torch.tensor([len(row.tokens) for row in rows]) - lengths
    layout = SequenceLayout.of_lengths(prompts, lengths)
    images = [row.raw_images for row in rows]
    media = [row.media for row in rows]
    extras = batch_extras(media)
    info = _joined_info([row.info for row in rows])
    return ExperienceVL(
        sequences=layout.unpack(torch.cat([row.tokens for row in rows]), fill=pad_token_id),
        attention_mask=layout.attention_mask.long(),  # type: ignore[arg-type]
        raw_images=None if None in images else [image for own in images for image in own or ()],
        info=info if extras is None else {**info, MEDIA_INPUTS: extras},
        **batch_fields(media),  # type: ignore[arg-type]
        **_joined_actions([row.per_action for row in rows], layout.action_mask),  # type: ignore[arg-type]
    )


def _joined_actions(rows: Sequence[Mapping[str, Tensor]], mask: Tensor) -> dict[str, Tensor]:
    _check_same_names("fields", rows)
    joined = {}
    for name in rows[0]:
        values = torch.cat([row[name] for row in rows])
        joined[name] = values.new_zeros(mask.shape).masked_scatter(mask, values)
    return joined


def _joined_info(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    _check_same_names("info", rows)
    joined: dict[str, object] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        tensors = [value for value in values if isinstance(value, Tensor)]
        joined[name] = torch.stack(tensors) if len(tensors) == len(values) else values
    return joined


def _check_same_names(what: str, rows: Sequence[Mapping[str, object]]) -> None:
    for row in rows:
        if row.keys() != rows[0].keys():
            odd = sorted(row.keys() ^ rows[0].keys())
            raise ValueError(f"samples of a batch differ in their {what}: {', '.join(odd)}")
