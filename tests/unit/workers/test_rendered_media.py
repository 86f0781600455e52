"""Processed media on their way from vLLM's renderer to transformers' models."""

import numpy as np
import pytest
import torch

from lightrft_ray.workers.rendered_media import model_inputs


def test_tensors_stay_as_they_are_but_for_bfloat16() -> None:
    grid = torch.tensor([[1, 4, 6]])
    pixels = torch.randn(24, 8, dtype=torch.bfloat16)
    given = model_inputs({"pixel_values": pixels, "image_grid_thw": grid})
    assert given["image_grid_thw"].dtype == np.int64
    assert given["pixel_values"].dtype == np.float32
    assert (given["pixel_values"] == pixels.float().numpy()).all()


def test_what_only_vllm_counts_is_left_out() -> None:
    own = {"num_patches": torch.tensor([3]), "timestamps": [[0.2, 1.2]]}
    assert list(model_inputs({"pixel_values": torch.ones(3, 2), **own})) == ["pixel_values"]


def test_images_of_different_tile_counts_are_filled_up() -> None:
    """As LLaVA-OneVision's own processor does."""
    tiles = [torch.ones(3, 3, 2, 2), torch.ones(5, 3, 2, 2)]
    pixels = model_inputs({"pixel_values": tiles})["pixel_values"]
    assert pixels.shape == (2, 5, 3, 2, 2)
    assert pixels[0, :3].all() and pixels[1].all() and not pixels[0, 3:].any()


def test_tiles_with_a_mask_lie_in_one_row() -> None:
    media = {"pixel_values": torch.ones(5, 3, 4, 4), "pixel_attention_mask": torch.ones(5, 4, 4)}
    shapes = {name: value.shape for name, value in model_inputs(media).items()}
    assert shapes == {"pixel_values": (1, 5, 3, 4, 4), "pixel_attention_mask": (1, 5, 4, 4)}


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match="input image_sizes is no tensor: str"):
        model_inputs({"image_sizes": "large"})
