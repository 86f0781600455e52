"""Whether the parts of a batch fit together; errors name field, prompt and both numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightrft_ray.models.families import config_of, unwrapped
from lightrft_ray.models.positions import MRopePositions, position_rule
from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.trainer.batch_media import media_of
from lightrft_ray.trainer.experience_types import SamplesVL

_LISTS = ("references", "labels", "prompts", "output_texts", "image_num", "video_num")
_PROMPTS_FIRST = sorted(_LISTS, key=lambda name: name != "prompts")  # later errors name prompts


def sample_name(row: int, prompts: Sequence[str] | None) -> str:
    """How errors call a sample."""
    return f"sample {row}" if not prompts or row >= len(prompts) else f"prompt {prompts[row]}"


def check_shape(
    field: str, got: Sequence[int], wanted: Sequence[int], prompts: Sequence[str] | None
) -> None:
    """Raise ValueError unless a field of a batch has this shape, whose first number is B.

    It names the first sample that the field has nothing of, or the first.
    """
    got, wanted = tuple(got), tuple(wanted)
    if got != wanted:
        row = got[0] if got and got[0] < wanted[0] else 0
        if len(got) == len(wanted) == 1:
            counts = f"{got[0]} entries for {wanted[0]} samples"
            raise ValueError(f"{field} of {sample_name(row, prompts)}: {counts}")
        raise ValueError(f"{field} of {sample_name(row, prompts)}: it is {got}, for {wanted}")


def batched_layout(samples: SamplesVL) -> SequenceLayout:
    """Where the tokens of batched samples lie; ValueError for masks that do not fit."""
    mask, prompts = action_mask(samples), samples.prompts
    if samples.sequences.dim() != 2:
        raise ValueError(f"sequences is {tuple(samples.sequences.shape)}: it must be (B, S)")
    size, width = samples.sequences.shape
    if not isinstance(samples.num_actions, int) or not 0 < samples.num_actions < width:
        raise ValueError(
            f"num_actions of {sample_name(0, prompts)}: {samples.num_actions} in sequences of "
            f"{width} tokens"
        )
    check_shape("action_mask", mask.shape, (size, samples.num_actions), prompts)
    if samples.attention_mask is None:
        raise ValueError("attention_mask is missing: batched samples need it")
    check_shape("attention_mask", samples.attention_mask.shape, (size, width), prompts)
    _check_stretches(samples.attention_mask.bool(), samples.num_actions, prompts)
    return SequenceLayout.of_mask(samples.attention_mask, samples.num_actions)


def _check_stretches(real: Tensor, width: int, prompts: Sequence[str] | None) -> None:
    """Prompts must end, and responses start, where the columns of the responses do."""
    before, behind = real[:, :-width].flip(1), real[:, -width:]
    for part, columns in (("prompt", before), ("response", behind)):
        unbroken = columns.long().cumprod(dim=1).sum(dim=1)
        wrong = (unbroken != columns.sum(dim=1)).nonzero().flatten().tolist()
        if wrong:
            row = wrong[0]
            raise ValueError(
                f"attention_mask of {sample_name(row, prompts)}: its {part} has "
                f"{int(columns[row].sum())} tokens, {int(unbroken[row])} of them next to the "
                f"column {real.shape[1] - width} where responses start"
            )


def action_mask(samples: SamplesVL) -> Tensor:
    """The (B, A) mask; ValueError where there is none."""
    if samples.action_mask is None:
        raise ValueError("action_mask is missing: batched samples need it")
    return samples.action_mask


def check_samples(samples: SamplesVL) -> None:
    """Raise ValueError for batched samples that do not fit together."""
    size = len(samples.sequences)
    for name in _PROMPTS_FIRST:
        values = getattr(samples, name)
        if values is not None:
            check_shape(name, (len(values),), (size,), samples.prompts)
    layout, mask = batched_layout(samples), action_mask(samples)
    outside = (mask.bool() & ~layout.action_mask).any(dim=1).nonzero().flatten().tolist()
    if outside:
        counts = int(mask[outside[0]].sum()), int(layout.response_lengths[outside[0]])
        raise ValueError(
            f"action_mask of {sample_name(outside[0], samples.prompts)}: {counts[0]} actions in a "
            f"response of {counts[1]} tokens"
        )
    _check_lengths(samples, "total_length", [layout.total_lengths])
    _check_lengths(samples, "response_length", [layout.response_lengths, mask.sum(dim=1)])
    if samples.media_inputs is not None:
        check_shape("media_inputs", (len(samples.media_inputs),), (size,), samples.prompts)
    if samples.image_num is not None or samples.video_num is not None:
        media_of(samples, size)


def _check_lengths(samples: SamplesVL, name: str, allowed: Sequence[Tensor]) -> None:
    """Lengths (B,) that are given must be one of the masks' own."""
    given = getattr(samples, name)
    if given is None:
        return
    given = torch.as_tensor(given, device=allowed[0].device)
    check_shape(name, given.shape, allowed[0].shape, samples.prompts)
    fits = torch.stack([given == lengths for lengths in allowed]).any(dim=0)
    wrong = (~fits).nonzero().flatten().tolist()
    if wrong:
        row = wrong[0]
        raise ValueError(
            f"{name} of {sample_name(row, samples.prompts)}: {int(given[row])}, "
            f"its masks have {int(allowed[0][row])} tokens"
        )


def check_packed(samples: SamplesVL, lengths: Tensor, counts: Tensor) -> None:
    """Raise ValueError unless packed `sequences`, `lengths` and numbers of actions (B,) fit."""
    prompts = samples.prompts
    check_shape("num_actions", counts.shape, lengths.shape, prompts)
    too_many = (counts >= lengths).nonzero().flatten().tolist()
    if too_many:
        row = too_many[0]
        raise ValueError(
            f"num_actions of {sample_name(row, prompts)}: {int(counts[row])} in a sample of "
            f"{int(lengths[row])} tokens"
        )
    total = int(lengths.sum())
    if samples.sequences.shape != (1, total):
        shape = tuple(samples.sequences.shape)
        last = sample_name(len(lengths) - 1, prompts)
        raise ValueError(f"sequences is {shape}, packed_seq_lens sum to {total} up to {last}")
    if samples.attention_mask is not None:
        check_shape("attention_mask", samples.attention_mask.shape, (1, total), prompts)
        _check_sample_ids(samples.attention_mask[0], lengths, prompts)


def _check_sample_ids(ids: Tensor, lengths: Tensor, prompts: Sequence[str] | None) -> None:
    numbers = torch.arange(len(lengths), device=ids.device) + 1
    wrong = (ids != numbers.repeat_interleave(lengths)).nonzero().flatten().tolist()
    if wrong:
        row = bisect_right(lengths.cumsum(0).tolist(), wrong[0])
        raise ValueError(
            f"attention_mask of {sample_name(row, prompts)}: {int((ids == row + 1).sum())} tokens "
            f"have its number {row + 1}, packed_seq_lens says {int(lengths[row])}"
        )


def check_placeholders(samples: SamplesVL, actor: nn.Module) -> None:
    """Raise ValueError where a sample has other placeholder tokens than its grids fill.

    Of models without grids, and of batches without counts, the models' own passes tell.
    """
    if samples.image_num is None and samples.video_num is None:
        return
    config = config_of(unwrapped(getattr(actor, "model", actor)))
    rule = None if config is None else position_rule(config)
    if not isinstance(rule, MRopePositions):
        return
    shown = media_of(samples, len(samples.sequences))
    for token, name in ((rule.image_token_id, "image"), (rule.video_token_id, "video")):
        found = (samples.sequences == token).sum(dim=1).tolist()
        for row, media in enumerate(shown):
            grids = (media.images if name == "image" else media.videos).grids
            rows = 0 if grids is None else int(grids.prod(dim=1).sum())
            filled = rows // rule.spatial_merge_size**2
            if found[row] != filled:
                raise ValueError(
                    f"{name}_grid_thws of {sample_name(row, samples.prompts)}: they fill {filled} "
                    f"tokens, sequences has {found[row]} placeholders"
                )


def check_finite(field: str, values: Tensor, mask: Tensor) -> None:
    """Raise ValueError for a number (B, A) that is not finite where the mask is set."""
    wrong = (mask.bool() & ~values.isfinite()).nonzero().tolist()
    if wrong:
        row, column = wrong[0]
        raise ValueError(
            f"{field} of sample {row}: {values[row, column].item()} at action {column}"
        )
