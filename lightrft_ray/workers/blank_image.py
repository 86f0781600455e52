"""A blank image for ranks whose micro-batch has none.

Ranks that shard a model gather its parameters, and add up its gradients, together and in the same
order. A rank without any image would leave the vision tower out while the others wait for it. So it
gets a row with a blank image of which nothing is trained: its weight in the loss is zero.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from lightrft_ray.config import RunConfig
from lightrft_ray.data.processing import PromptEncoder, load_processor
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.families import accepts
from lightrft_ray.models.rows import PromptGroup, Rows

_SIDE = 56  # pixels: one of the smallest images that every family's processor takes
_NO_LIMIT = 10**6
_NOT_MEDIA = ("mm_token_type_ids", "token_type_ids", "batch_num_images")


def blank_image_group(model: nn.Module, config: RunConfig, *, ranks: int) -> PromptGroup | None:
    """A prompt of one blank image; None where no rank waits for another, or the model is blind."""
    if ranks == 1 or not accepts(model, "pixel_values"):
        return None
    processor = load_processor(config.model.pretrain, config.model.trust_remote_code)
    message = {"role": "user", "content": [{"type": "image"}]}
    prompt = Prompt("blank", (message,), ("blank",), Path(), "", "")  # type: ignore[arg-type]
    image = Image.new("RGB", (_SIDE, _SIDE))
    encoded = PromptEncoder(processor, None, _NO_LIMIT).encode(prompt, [image])
    media = {k: v for k, v in encoded.mm_inputs.items() if k not in _NOT_MEDIA}
    return PromptGroup(encoded.expanded_ids, [torch.zeros(1, dtype=torch.long)], media)


def without_last_sample(rows: Rows) -> Rows:
    """The same rows without the actions of the last sample: it is computed and counts nothing."""
    return replace(
        rows,
        action_columns=rows.action_columns[:-1],
        action_ids=rows.action_ids[:-1],
        action_mask=rows.action_mask[:-1],
    )
