"""Samples from the generators and the experience made of them.

Shapes: B samples, S padded sequence length, A padded response length. Field names, order and
defaults are the documented interface.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from PIL import Image


def cumulative_product(data: list[int] | int | np.ndarray | torch.Tensor) -> int:
    """The product of an integer, a list of integers, or an array's or tensor's elements.

    The product of an empty list is 1. Raises ValueError that names any other type.
    """
    if isinstance(data, int | np.integer):
        return int(data)
    if isinstance(data, torch.Tensor):
        return int(data.prod())
    if isinstance(data, list | np.ndarray):
        return int(np.prod(data))
    raise ValueError(f"cumulative_product takes an int, list, array or tensor, not {type(data)}")


def to(tensor: Any, device: torch.device | str) -> Any:
    """Move a tensor, or the tensors of a list; anything else is returned as it is."""
    return _map_listed(tensor, lambda t: t.to(device))


def pin_memory(tensor: Any) -> Any:
    """Pin a tensor, or the tensors of a list; a no-op where there is no accelerator."""
    if not torch.cuda.is_available():
        return tensor
    return _map_listed(tensor, lambda t: t.pin_memory())


def _map_listed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `change` to a tensor and to those in a list."""
    if isinstance(value, list):
        return [_map_listed(item, change) for item in value]
    return change(value) if isinstance(value, torch.Tensor) else value


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `change` to a tensor and to those inside lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, change) for item in value)
    return value


@dataclass
class SamplesVL:
    """One batch of samples, batched (padded) or packed.

    Batched: `sequences` (B, S) with prompts left-padded and responses right-padded, so that every
    response starts at column S − A; `num_actions` is A and `action_mask` (B, A). Packed:
    `sequences` (1, total), `attention_mask` holds 1-based sample ids, `action_mask` is None,
    `num_actions` and `packed_seq_lens` have one number a sample.

    `media_inputs`, which is no field, has for each sample what its model takes beside pixels and
    grids, by the model's names: `image_sizes`, `pixel_attention_mask`, `second_per_grid_ts`, …;
    None where no sample has any.
    """

    sequences: torch.Tensor
    attention_mask: torch.LongTensor | None = None
    action_mask: torch.BoolTensor | None = None
    pixel_values: torch.Tensor | None = None
    image_grid_thws: torch.Tensor | None = None
    raw_images: list[Image.Image] | None = None
    image_num: list[int] | None = None
    pixel_values_videos: torch.Tensor | None = None
    video_grid_thws: torch.Tensor | None = None
    video_num: list[int] | None = None
    num_actions: int | torch.Tensor = None  # type: ignore[assignment]
    packed_seq_lens: torch.Tensor | None = None
    response_length: torch.Tensor = None  # type: ignore[assignment]
    total_length: torch.Tensor = None  # type: ignore[assignment]
    references: list[str] | None = None
    labels: list[str] | None = None
    prompts: list[str] = None  # type: ignore[assignment]
    output_texts: list[str] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        # Not annotated in the class, since the documented fields are all there are.
        self.media_inputs: list[dict[str, torch.Tensor]] | None = None

    def changed(self, **changes: Any) -> SamplesVL:
        """A copy with other values in some fields; unlike `replace`, it keeps `media_inputs`."""
        copy = replace(self, **changes)
        copy.media_inputs = self.media_inputs
        return copy


@dataclass
class ExperienceVL:
    """A batch with everything the learners need; action j predicts token S − A + j.

    `action_log_probs`, `base_action_log_probs`, `values`, `returns`, `advantages`, `action_mask`,
    `kl` and `action_entropy` are (B, A); `sequences` and `attention_mask` (B, S); grids (media, 3).
    `info` holds tensors and lists with an entry a sample, `media_inputs` of the samples among them.
    """

    sequences: torch.Tensor
    pixel_values: torch.Tensor | None = None
    image_grid_thws: torch.Tensor | None = None
    raw_images: list[Image.Image] | None = None
    pixel_values_videos: torch.Tensor | None = None
    video_grid_thws: torch.Tensor | None = None
    action_log_probs: torch.Tensor = None  # type: ignore[assignment]
    base_action_log_probs: torch.Tensor = None  # type: ignore[assignment]
    values: torch.Tensor = None  # type: ignore[assignment]
    returns: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    attention_mask: torch.LongTensor | None = None
    action_mask: torch.BoolTensor | None = None
    info: dict[str, Any] | None = None
    kl: torch.Tensor | None = None
    action_entropy: torch.Tensor | None = None

    def to_device(self, device: torch.device | str) -> ExperienceVL:
        """Move every tensor, also those in `info`; returns self."""
        return self._change(lambda t: t.to(device))

    def pin_memory(self) -> ExperienceVL:
        """Pin every tensor for faster transfer to a GPU; returns self."""
        return self._change(lambda t: t.pin_memory()) if torch.cuda.is_available() else self

    def _change(self, change: Callable[[torch.Tensor], torch.Tensor]) -> ExperienceVL:
        for field in fields(self):
            setattr(self, field.name, map_tensors(getattr(self, field.name), change))
        return self


def required_mask(experience: ExperienceVL) -> torch.Tensor:
    """The (B, A) action mask; ValueError where the experience has none."""
    if experience.action_mask is None:
        raise ValueError("experience.action_mask is missing")
    return experience.action_mask
