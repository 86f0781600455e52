"""Prompts as models take them: tokenised, with their images processed, left-padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from lightrft_ray.trainer.media import Medium, SampleMedia

PromptImages = None | Image.Image | Sequence[Image.Image]
_SHOWN = 60  # characters of a prompt in an error


@dataclass(frozen=True, eq=False)
class PromptInputs:
    """One prompt: `token_ids` with expanded placeholders, its images raw and processed."""

    token_ids: list[int]
    images: tuple[Image.Image, ...]
    media: SampleMedia


def encode_prompts(
    texts: Sequence[str],
    images: Sequence[PromptImages] | None,
    max_length: int,
    tokenizer: PreTrainedTokenizerBase,
    processor: ProcessorMixin | None,
) -> list[PromptInputs]:
    """Each prompt through the processor once, or the tokenizer where it has no images.

    Nothing is cut off: ValueError for a prompt of more than `max_length` tokens, which names it,
    for lists of different lengths, and for images without a processor.
    """
    given = [None] * len(texts) if images is None else list(images)
    if len(given) != len(texts):
        raise ValueError(f"images has {len(given)} entries for {len(texts)} prompts")
    encoded = []
    for text, own in zip(texts, given, strict=True):
        prompt = _encode(text, _as_tuple(own), tokenizer, processor)
        if len(prompt.token_ids) > max_length:
            raise ValueError(
                f"prompt {text[:_SHOWN]!r}: {len(prompt.token_ids)} tokens, over the limit "
                f"{max_length}"
            )
        encoded.append(prompt)
    return encoded


def _as_tuple(images: PromptImages) -> tuple[Image.Image, ...]:
    if images is None:
        return ()
    return (images,) if isinstance(images, Image.Image) else tuple(images)


def _encode(
    text: str,
    images: tuple[Image.Image, ...],
    tokenizer: PreTrainedTokenizerBase,
    processor: ProcessorMixin | None,
) -> PromptInputs:
    if not images:
        token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return PromptInputs(token_ids, (), SampleMedia())
    if processor is None:
        raise ValueError(f"prompt {text[:_SHOWN]!r} has images, but there is no processor")
    inputs = processor(
        text=[text], images=list(images), add_special_tokens=False, return_tensors="pt"
    )
    medium = Medium(len(images), inputs["pixel_values"], inputs.get("image_grid_thw"))
    held = len(inputs["pixel_values"] if medium.grids is None else medium.grids)
    if held != len(images):
        raise ValueError(
            f"prompt {text[:_SHOWN]!r}: {len(images)} images, of which the processor made {held}"
        )
    return PromptInputs(inputs["input_ids"][0].tolist(), images, SampleMedia(images=medium))


def left_padded(token_ids: Sequence[Sequence[int]], pad_token_id: int) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask`, (B, P) long each."""
    rows = [torch.tensor(ids, dtype=torch.long) for ids in token_ids]
    ids, mask = (
        pad_sequence(values, batch_first=True, padding_value=fill, padding_side="left")
        for values, fill in ((rows, pad_token_id), ([torch.ones_like(row) for row in rows], 0))
    )
    return {"input_ids": ids, "attention_mask": mask}
