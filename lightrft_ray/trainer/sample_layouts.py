"""Batches of samples checked, and converted between the batched and the packed layout."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.trainer.batch_media import media_of
from lightrft_ray.trainer.experience_types import SamplesVL, map_tensors, to

_LISTS = ("references", "labels", "prompts", "output_texts", "image_num", "video_num")


def batched(samples: SamplesVL, pad_token_id: int) -> SamplesVL:
    """The samples in the batched layout, checked.

    Raises ValueError that names the field and both numbers where something does not fit.
    """
    if samples.packed_seq_lens is not None:
        samples = unpack_samples(samples, pad_token_id)
    _check(samples)
    return samples


def pack_samples(samples: SamplesVL) -> SamplesVL:
    """From the batched to the packed layout; ValueError for holes in the action mask."""
    layout = _batched_layout(samples)
    if not torch.equal(layout.action_mask, _action_mask(samples).bool()):
        raise ValueError("action_mask has holes, which the packed layout cannot hold")
    return samples.changed(
        sequences=layout.pack(samples.sequences)[None],
        attention_mask=(layout.sample_index + 1)[None],
        action_mask=None,
        num_actions=layout.response_lengths,
        packed_seq_lens=layout.total_lengths,
        response_length=layout.response_lengths,
        total_length=layout.total_lengths,
    )


def unpack_samples(samples: SamplesVL, pad_token_id: int) -> SamplesVL:
    """From the packed to the batched layout."""
    if samples.packed_seq_lens is None:
        raise ValueError("packed_seq_lens is missing: the samples are not packed")
    lengths = torch.as_tensor(samples.packed_seq_lens, device=samples.sequences.device)
    counts = torch.as_tensor(samples.num_actions, device=lengths.device)
    layout = SequenceLayout.of_packed(lengths, counts)
    if samples.sequences.shape != (1, int(lengths.sum())):
        shape = tuple(samples.sequences.shape)
        raise ValueError(f"sequences {shape} for packed_seq_lens that sum to {int(lengths.sum())}")
    return samples.changed(
        sequences=layout.unpack(samples.sequences[0], fill=pad_token_id),
        attention_mask=layout.attention_mask.long(),
        action_mask=layout.action_mask,
        num_actions=layout.response_width,
        packed_seq_lens=None,
        response_length=layout.response_lengths,
        total_length=layout.total_lengths,
    )


def samples_to(samples: SamplesVL, device: torch.device) -> SamplesVL:
    """The samples with every tensor on a device."""
    moved = samples.changed(
        **{field.name: to(getattr(samples, field.name), device) for field in fields(samples)}
    )
    moved.media_inputs = map_tensors(samples.media_inputs, lambda tensor: tensor.to(device))
    return moved


def _check(samples: SamplesVL) -> None:
    layout, mask = _batched_layout(samples), _action_mask(samples)
    size = len(samples.sequences)
    outside = (mask.bool() & ~layout.action_mask).any(dim=1).nonzero().flatten().tolist()
    if outside:
        counts = int(mask[outside[0]].sum()), int(layout.response_lengths[outside[0]])
        raise ValueError(
            f"action_mask of {_name(samples, outside[0])}: {counts[0]} actions in a response of "
            f"{counts[1]} tokens"
        )
    for name in _LISTS:
        values = getattr(samples, name)
        if values is not None and len(values) != size:
            raise ValueError(f"{name} has {len(values)} entries for {size} samples")
    if samples.image_num is not None or samples.video_num is not None:
        media_of(samples, size)


def _name(samples: SamplesVL, row: int) -> str:
    return f"sample {row}" if samples.prompts is None else f"prompt {samples.prompts[row]}"


def _action_mask(samples: SamplesVL) -> Tensor:
    if samples.action_mask is None:
        raise ValueError("action_mask is missing: batched samples need it")
    return samples.action_mask


def _batched_layout(samples: SamplesVL) -> SequenceLayout:
    mask = _action_mask(samples)
    if mask.shape != (len(samples.sequences), samples.num_actions):
        raise ValueError(
            f"action_mask is {tuple(mask.shape)}, for {len(samples.sequences)} sequences with "
            f"num_actions {samples.num_actions}"
        )
    attention_mask = samples.attention_mask
    if attention_mask is None or attention_mask.shape != samples.sequences.shape:
        shape = None if attention_mask is None else tuple(attention_mask.shape)
        raise ValueError(
            f"attention_mask is {shape}, for sequences {tuple(samples.sequences.shape)}"
        )
    return SequenceLayout.of_mask(attention_mask, mask.size(1))
