"""Batches of samples checked, and converted between the batched and the packed layout."""

from __future__ import annotations

from dataclasses import fields

import torch

from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.trainer.experience_types import SamplesVL, map_tensors, to
from lightrft_ray.trainer.sample_checks import (
    action_mask,
    batched_layout,
    check_packed,
    check_samples,
)


def batched(samples: SamplesVL, pad_token_id: int) -> SamplesVL:
    """The samples in the batched layout, checked.

    Raises ValueError that names the field and both numbers where something does not fit.
    """
    if samples.packed_seq_lens is not None:
        samples = unpack_samples(samples, pad_token_id)
    check_samples(samples)
    return samples


def pack_samples(samples: SamplesVL) -> SamplesVL:
    """From the batched to the packed layout; ValueError for holes in the action mask."""
    layout = batched_layout(samples)
    if not torch.equal(layout.action_mask, action_mask(samples).bool()):
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
    """From the packed to the batched layout; ValueError for parts that do not fit together."""
    if samples.packed_seq_lens is None:
        raise ValueError("packed_seq_lens is missing: the samples are not packed")
    lengths = torch.as_tensor(samples.packed_seq_lens, device=samples.sequences.device)
    counts = torch.as_tensor(samples.num_actions, device=lengths.device)
    check_packed(samples, lengths, counts)
    layout = SequenceLayout.of_packed(lengths, counts)
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
