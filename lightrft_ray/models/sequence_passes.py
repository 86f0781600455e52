"""One forward pass over documented batches: padded (B, S), or packed (1, T).

A pass has K *scored* tokens, in the order of the result's rows; states of R rows of T columns
predict them. Padded batches may be packed for the pass, so that nothing is computed for padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lightrft_ray.models.positions import MRopePositions, PositionRule
from lightrft_ray.models.sequences import SequenceLayout

ActionCounts = int | Sequence[int] | Tensor


@dataclass(frozen=True, eq=False)
class SequencePass:
    """Model inputs, and which states predict which tokens.

    `input_ids` (R, T); `attention_mask` (R, T), or None where `position_ids` tell the samples of a
    packed row apart; `position_ids` (R, T) or (axes, R, T). `rows`, `columns` and `labels` are
    (K,); `result_mask` is True at the K places of a result.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    rows: Tensor
    columns: Tensor
    labels: Tensor
    result_mask: Tensor

    def select(self, states: Tensor) -> Tensor:
        """(K, …) of (R, T, …): the states that predict the scored tokens."""
        return states[self.rows, self.columns]

    def scatter(self, values: Tensor) -> Tensor:
        """(K,) values where they belong in the result, 0 elsewhere."""
        zeros = values.new_zeros(self.result_mask.shape)
        return zeros.masked_scatter(self.result_mask, values)


def padded_pass(
    sequences: Tensor,
    num_actions: int | None,
    attention_mask: Tensor | None,
    rule: PositionRule,
    media: Mapping[str, Tensor],
    *,
    pack: bool,
) -> SequencePass:
    """A pass over a padded batch; its result is (B, A), or (B, S − 1) if `num_actions` is None.

    The result is 0 at padding and at a sample's first token, which nothing predicts. With `pack`
    the model sees one packed row. Raises ValueError for shapes that do not fit.
    """
    mask = torch.ones_like(sequences) if attention_mask is None else attention_mask
    mask = _checked_mask(sequences, mask)
    width = sequences.shape[1] - 1 if num_actions is None else num_actions
    if not 0 <= width < sequences.shape[1]:
        raise ValueError(f"num_actions {num_actions} for sequences of {sequences.shape[1]} tokens")
    first = sequences.shape[1] - width
    scored = mask[:, first:] & mask[:, first - 1 : -1]
    layout = _layout_of(mask.sum(dim=1))
    positions = packed_position_ids(rule, sequences[mask], layout, media)
    rows, columns = scored.nonzero(as_tuple=True)
    columns = columns + first - 1
    labels = sequences[:, first:][scored]
    if pack:
        place = mask.flatten().cumsum(0).view(mask.shape) - 1
        inputs = _packed_inputs(sequences[mask], positions, layout)
        return SequencePass(*inputs, torch.zeros_like(rows), place[rows, columns], labels, scored)
    padded = positions.new_zeros((len(positions), *mask.shape))
    padded[:, mask] = positions
    ids = padded[0] if len(padded) == 1 else padded
    return SequencePass(sequences, mask.long(), ids, rows, columns, labels, scored)


def packed_pass(
    sequences: Tensor,
    num_actions: ActionCounts | None,
    sequence_lengths: Sequence[int] | Tensor,
    rule: PositionRule,
    media: Mapping[str, Tensor],
) -> SequencePass:
    """A pass over a packed (1, T) batch; its result is (1, Σ num_actions), or (1, T − 1).

    Without `num_actions` the first token of each sample has 0.
    """
    lengths = torch.as_tensor(sequence_lengths, device=sequences.device)
    if sequences.shape != (1, int(lengths.sum())):
        shape = tuple(sequences.shape)
        raise ValueError(
            f"sequences {shape} are no packed row of packed_seq_lens {lengths.tolist()}"
        )
    whole = _layout_of(lengths)
    if num_actions is None:
        columns = torch.arange(sequences.shape[1] - 1, device=sequences.device)
        result_mask = (whole.sample_index[1:] == whole.sample_index[:-1])[None]
        columns = columns[result_mask[0]]
    else:
        counts = torch.as_tensor(num_actions, device=sequences.device).expand_as(lengths)
        layout = SequenceLayout.of_packed(lengths, counts)
        if (layout.prompt_lengths < 1).any():
            raise ValueError(f"num_actions {counts.tolist()} leave a sample without a prompt")
        columns = layout.packed_actions[layout.action_mask]
        result_mask = torch.ones_like(columns, dtype=torch.bool)[None]
    inputs = _packed_inputs(
        sequences[0], packed_position_ids(rule, sequences[0], whole, media), whole
    )
    labels = sequences[0, columns + 1]
    return SequencePass(*inputs, torch.zeros_like(columns), columns, labels, result_mask)


def _packed_inputs(
    tokens: Tensor, positions: Tensor, layout: SequenceLayout
) -> tuple[Tensor, None, Tensor]:
    """M-RoPE rows are led by one of plain positions, which tell the samples apart."""
    if len(positions) == 1:
        return tokens[None], None, positions
    return tokens[None], None, torch.cat([layout.packed_positions[None], positions])[:, None]


def packed_position_ids(
    rule: PositionRule, token_ids: Tensor, layout: SequenceLayout, media: Mapping[str, Tensor]
) -> Tensor:
    """Ids (axes, T) of packed `token_ids` (T,), from 0 for each sample; media in sample order."""
    if not isinstance(rule, MRopePositions):
        return layout.packed_positions[None]
    samples = token_ids.split(layout.total_lengths.tolist())
    own_media = _media_of_samples(rule, samples, media)
    ids = [
        rule.prompt_positions(tokens.cpu(), own)
        for tokens, own in zip(samples, own_media, strict=True)
    ]
    return torch.cat(ids, dim=1).to(token_ids.device)


def _media_of_samples(
    rule: MRopePositions, samples: Sequence[Tensor], media: Mapping[str, Tensor]
) -> list[dict[str, Tensor]]:
    """Each sample's grids: as many as its placeholder tokens fill."""
    own: list[dict[str, Tensor]] = [{} for _ in samples]
    for name, token in (("image", rule.image_token_id), ("video", rule.video_token_id)):
        filled = torch.stack([(tokens == token).sum() for tokens in samples]).cpu().cumsum(0)
        grids = media.get(f"{name}_grid_thw")
        grids = torch.zeros(0, 3, dtype=torch.long) if grids is None else grids.cpu()
        sizes = (grids.prod(dim=1) // rule.spatial_merge_size**2).cumsum(0)
        total = int(sizes[-1]) if len(sizes) else 0
        if filled[-1] != total:
            raise ValueError(
                f"{int(filled[-1])} {name} tokens in sequences, {total} in {name}_grid_thw"
            )
        stops = torch.searchsorted(sizes, filled, right=True).tolist()
        for sample, (start, stop) in enumerate(pairwise([0, *stops])):
            own[sample][f"{name}_grid_thw"] = grids[start:stop]
            if name == "video" and "second_per_grid_ts" in media:
                own[sample]["second_per_grid_ts"] = media["second_per_grid_ts"][start:stop]
    return own


def _layout_of(lengths: Tensor) -> SequenceLayout:
    """Whole sequences, whatever of them is response."""
    return SequenceLayout.of_lengths(lengths, torch.zeros_like(lengths))


def _checked_mask(sequences: Tensor, mask: Tensor) -> Tensor:
    """The mask as bool; each row one unbroken stretch of real tokens."""
    if sequences.dim() != 2 or mask.shape != sequences.shape:
        raise ValueError(
            f"attention_mask {tuple(mask.shape)} for sequences {tuple(sequences.shape)}"
        )
    mask = mask.bool()
    before = torch.nn.functional.pad(mask[:, :-1], (1, 0))
    wrong = ((mask & ~before).sum(dim=1) != 1).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"attention_mask of sample {wrong[0]}: real tokens must be one unbroken stretch"
        )
    return mask
