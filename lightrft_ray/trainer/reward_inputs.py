"""What rewards see of a batch of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO

from PIL import Image

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample
from lightrft_ray.trainer.experience_types import SamplesVL


def reward_samples(samples: SamplesVL, *, with_media: bool) -> list[RewardSample]:
    """One entry for each of batched samples; images, where they are wanted, as PNG.

    Raises UserError where there are images of which the batch has only the pixels.
    """
    size = len(samples.sequences)
    blank = [""] * size
    images = list(_images(samples, size)) if with_media else [()] * size
    prompts = samples.prompts or blank
    return [
        RewardSample(
            sample_id=str(row),
            prompt=prompts[row],
            messages=_messages(prompts[row], len(images[row])),
            response=(samples.output_texts or blank)[row],
            response_token_ids=_actions(samples, row),
            reference=(samples.references or blank)[row],
            label=(samples.labels or blank)[row],
            images=images[row],
        )
        for row in range(size)
    ]


def _images(samples: SamplesVL, size: int) -> Iterator[tuple[EncodedMedia, ...]]:
    """Each sample's images; samples of a prompt share what was encoded once."""
    counts = samples.image_num or [0] * size
    raw = samples.raw_images or []
    if len(raw) != sum(counts):
        raise UserError(
            f"raw_images has {len(raw)} images, image_num counts {sum(counts)}: give them to "
            "rewards that look at images"
        )
    files = {key: _as_png(image) for key, image in {id(each): each for each in raw}.items()}
    start = 0
    for count in counts:
        yield tuple(files[id(image)] for image in raw[start : start + count])
        start += count


def _as_png(image: Image.Image) -> EncodedMedia:
    target = BytesIO()
    image.convert("RGB").save(target, format="PNG")
    return EncodedMedia(target.getvalue(), "image/png")


def _messages(prompt: str, images: int) -> Sequence[dict[str, object]]:
    shown: list[dict[str, object]] = [{"type": "image"} for _ in range(images)]
    return [{"role": "user", "content": [*shown, {"type": "text", "text": prompt}]}]


def _actions(samples: SamplesVL, row: int) -> list[int]:
    if samples.action_mask is None:
        raise ValueError("action_mask is missing: rewards take batched samples")
    mask = samples.action_mask[row].bool()
    tokens: list[int] = samples.sequences[row, -len(mask) :][mask].tolist()
    return tokens
