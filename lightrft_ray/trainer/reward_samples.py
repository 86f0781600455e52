"""Batched samples as rewards get them."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from PIL import Image

from lightrft_ray.rewards.sample import EncodedMedia, RewardSample
from lightrft_ray.trainer.experience_types import SamplesVL


def reward_samples(samples: SamplesVL, *, with_media: bool) -> list[RewardSample]:
    """One entry a sample, its row's number being its id; images are encoded where they are wanted.

    What samples do not know is "".
    """
    count = len(samples.sequences)
    blank = [""] * count
    prompts, responses = samples.prompts or blank, samples.output_texts or blank
    references, labels = samples.references or blank, samples.labels or blank
    token_ids = _response_token_ids(samples)
    images = _images(samples) if with_media else [()] * count
    return [
        RewardSample(
            sample_id=str(row),
            prompt=prompts[row],
            messages=[{"role": "user", "content": prompts[row]}],
            response=responses[row],
            response_token_ids=token_ids[row],
            reference=references[row],
            label=labels[row],
            images=images[row],
        )
        for row in range(count)
    ]


def _response_token_ids(samples: SamplesVL) -> list[list[int]]:
    if samples.action_mask is None:
        raise ValueError("action_mask is missing: batched samples need it")
    width = samples.action_mask.shape[1]
    responses = samples.sequences[:, samples.sequences.shape[1] - width :]
    pairs = zip(responses, samples.action_mask.bool(), strict=True)
    return [row[mask].tolist() for row, mask in pairs]


def _images(samples: SamplesVL) -> list[tuple[EncodedMedia, ...]]:
    images = samples.raw_images or []
    counts = samples.image_num or [0] * len(samples.sequences)
    if sum(counts) != len(images):
        raise ValueError(f"image_num counts {sum(counts)} images, raw_images has {len(images)}")
    remaining = iter(_encoded(images))
    return [tuple(next(remaining) for _ in range(count)) for count in counts]


def _encoded(images: Sequence[Image.Image]) -> list[EncodedMedia]:
    """As PNG; the samples of a prompt share its images, which are encoded once."""
    encoded: dict[int, EncodedMedia] = {}
    for image in images:
        if id(image) not in encoded:
            buffer = BytesIO()
            image.save(buffer, format="PNG")
            encoded[id(image)] = EncodedMedia(buffer.getvalue(), "image/png")
    return [encoded[id(image)] for image in images]
