"""Media that vLLM's renderer processed, as transformers' models take them."""

from collections.abc import Mapping

import numpy as np
import torch

from lightrft_ray.models.rows import concatenate_padded

# What vLLM's models are told of media beside what transformers' models take.
_OWN = (
    "num_patches",
    "image_num_patches",
    "image_token_id",
    "video_num_patches",
    "video_token_id",
    "timestamps",  # of Qwen3-VL's frames, which stand in the prompt as text
)
_TILES = ("pixel_values", "pixel_attention_mask")


def model_inputs(media: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Model inputs by name; TypeError for one that is no tensor and no list of tensors."""
    arrays = {name: _as_array(name, value) for name, value in media.items() if name not in _OWN}
    if "pixel_attention_mask" not in arrays:
        return arrays
    # The Idefics 3 family: all tiles of a prompt lie in one row.
    return {name: value[None] if name in _TILES else value for name, value in arrays.items()}


def _as_array(name: str, value: object) -> np.ndarray:
    """numpy knows no bfloat16; models cast pixels to their own type anyway.

    Images that are cut into different numbers of tiles come as a list: zeros fill it up.
    """
    if isinstance(value, list) and all(isinstance(part, torch.Tensor) for part in value):
        value = concatenate_padded([part[None] for part in value])
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"the processed media input {name} is no tensor: {type(value).__name__}")
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
