"""Prompts as models take them: tokenised, with their images and videos processed, left-padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from transformers.video_utils import VideoMetadata

from lightrft_ray.trainer.media import Medium, SampleMedia

_SHOWN = 60  # characters of a prompt in an error
_TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
_MEDIUM_INPUTS = {
    "images": ("pixel_values", "image_grid_thw"),
    "videos": ("pixel_values_videos", "video_grid_thw"),
}


@dataclass(frozen=True, eq=False)
class Video:
    """A video's frames, all of which the model is to see, and how many of them make a second."""

    frames: Sequence[Image.Image]
    fps: float


PromptMedium = Image.Image | Video
PromptMedia = None | PromptMedium | Sequence[PromptMedium]
"""What a prompt shows: nothing, an image, a video, or several as their placeholders come."""


@dataclass(frozen=True, eq=False)
class PromptInputs:
    """One prompt: `token_ids` with expanded placeholders, its media raw and processed."""

    token_ids: list[int]
    images: tuple[Image.Image, ...]
    media: SampleMedia


def encode_prompts(
    texts: Sequence[str],
    media: Sequence[PromptMedia] | None,
    max_length: int,
    tokenizer: PreTrainedTokenizerBase,
    processor: ProcessorMixin | None,
) -> list[PromptInputs]:
    """Each prompt through the processor once, or the tokenizer where it has no media.

    Nothing is cut off: ValueError for a prompt of more than `max_length` tokens, which names it,
    for lists of different lengths, and for media without a processor or that it does not make.
    """
    given = [None] * len(texts) if media is None else list(media)
    if len(given) != len(texts):
        raise ValueError(f"images has {len(given)} entries for {len(texts)} prompts")
    encoded = []
    for text, own in zip(texts, given, strict=True):
        prompt = _encode(text, _as_list(own), tokenizer, processor)
        if len(prompt.token_ids) > max_length:
            raise ValueError(
                f"prompt {text[:_SHOWN]!r}: {len(prompt.token_ids)} tokens, over the limit "
                f"{max_length}"
            )
        encoded.append(prompt)
    return encoded


def _as_list(media: PromptMedia) -> list[PromptMedium]:
    if media is None:
        return []
    return [media] if isinstance(media, PromptMedium) else list(media)


def _encode(
    text: str,
    media: Sequence[PromptMedium],
    tokenizer: PreTrainedTokenizerBase,
    processor: ProcessorMixin | None,
) -> PromptInputs:
    if not media:
        token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return PromptInputs(token_ids, (), SampleMedia())
    if processor is None:
        raise ValueError(f"prompt {text[:_SHOWN]!r} has images, but there is no processor")
    images = tuple(medium for medium in media if isinstance(medium, Image.Image))
    videos = [medium for medium in media if isinstance(medium, Video)]
    inputs: Mapping[str, Tensor] = processor(
        text=[text],
        **({"images": list(images)} if images else {}),
        **(_video_arguments(videos) if videos else {}),
        add_special_tokens=False,
        return_tensors="pt",
    )
    used = {name for names in _MEDIUM_INPUTS.values() for name in names}
    return PromptInputs(
        inputs["input_ids"][0].tolist(),
        images,
        SampleMedia(
            _medium("images", len(images), inputs, text),
            _medium("videos", len(videos), inputs, text),
            {
                name: value.bool() if name == "pixel_attention_mask" else value
                for name, value in inputs.items()
                if name not in used and name not in _TEXT_INPUTS
            },
        ),
    )


def _video_arguments(videos: Sequence[Video]) -> dict[str, object]:
    """The frames are those that the model is to see: the processor must not choose among them."""
    return {
        "videos": [list(video.frames) for video in videos],
        "video_metadata": [
            VideoMetadata(
                total_num_frames=len(video.frames),
                fps=video.fps,
                frames_indices=list(range(len(video.frames))),
            )
            for video in videos
        ],
        "do_sample_frames": False,
    }


def _medium(kind: str, count: int, inputs: Mapping[str, Tensor], text: str) -> Medium:
    """What the processor made of `count` images or videos."""
    if count == 0:
        return Medium()
    pixels, grids = (inputs.get(name) for name in _MEDIUM_INPUTS[kind])
    if grids is not None:
        held = len(grids)
    elif pixels is None:
        held = 0
    else:
        # One entry for all images of a prompt is Idefics 3 style: (1, tiles, C, H, W).
        is_joint = kind == "images" and pixels.dim() == 5 and "image_sizes" not in inputs
        held = count if is_joint and len(pixels) == 1 else len(pixels)
    if held != count:
        raise ValueError(
            f"prompt {text[:_SHOWN]!r}: {count} {kind}, of which the processor made {held}"
        )
    return Medium(count, pixels, grids)


def left_padded(token_ids: Sequence[Sequence[int]], pad_token_id: int) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask`, (B, P) long each."""
    rows = [torch.tensor(ids, dtype=torch.long) for ids in token_ids]
    ids, mask = (
        pad_sequence(values, batch_first=True, padding_value=fill, padding_side="left")
        for values, fill in ((rows, pad_token_id), ([torch.ones_like(row) for row in rows], 0))
    )
    return {"input_ids": ids, "attention_mask": mask}
