"""Rows of a forward pass, built from prompt groups.

A group is one prompt and the responses sampled from it. In the layout ``shared_prefix`` one row
holds [prompt, response 1, …, response n] of every group: each response attends to its prompt and to
itself, and its positions go on from the prompt's end, so that the prompt and its images are
computed once for all n. In ``packed`` the row holds whole samples one behind another. Neither
computes anything for padding. In ``padded`` each sample has a row of its own, as every model family
can run it. All three give the same results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from lightrft_ray.models.positions import PositionRule
from lightrft_ray.models.row_attention import RowAttention

RowLayout = Literal["shared_prefix", "packed", "padded"]


@dataclass(frozen=True)
class PromptGroup:
    """One prompt and its responses; the unit of work of a run.

    `prompt_ids` (P,) holds the expanded placeholders of images, `responses` one (L,) tensor a
    sample, `media` the processor's model inputs of the prompt (pixel_values, image_grid_thw, …).
    """

    prompt_ids: Tensor
    responses: Sequence[Tensor]
    media: Mapping[str, Tensor]


@dataclass(frozen=True)
class Rows:
    """Model inputs of a micro-batch and where its actions are.

    `input_ids` (R, T); `position_ids` (R, T), or (4, R, T) for M-RoPE (text positions first);
    `attention` is an (R, T) mask of padding, or says who sees whom in the single row of the other
    layouts. `action_columns` (N, A) indexes the R·T hidden states that predict `action_ids` (N, A);
    `action_mask` (N, A) is False behind the end of a response. N samples, in the order of groups
    and responses.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention: Tensor | RowAttention
    media: Mapping[str, Tensor]
    action_columns: Tensor
    action_ids: Tensor
    action_mask: Tensor

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        return Rows(
            input_ids=self.input_ids.to(device),
            position_ids=self.position_ids.to(device),
            attention=self.attention.to(device),
            media={name: value.to(device) for name, value in self.media.items()},
            action_columns=self.action_columns.to(device),
            action_ids=self.action_ids.to(device),
            action_mask=self.action_mask.to(device),
        )


def build_rows(
    groups: Sequence[PromptGroup], layout: RowLayout, positions: PositionRule, pad_token_id: int
) -> Rows:
    """Rows for a micro-batch of groups. Raises ValueError for an empty response."""
    if any(len(response) == 0 for group in groups for response in group.responses):
        raise ValueError("a response has no tokens: at least its stop token is one")
    if layout != "shared_prefix":
        groups = [
            replace(group, responses=[response]) for group in groups for response in group.responses
        ]
    rows = [_Row(group, positions) for group in groups]
    media = _concatenate_media([group.media for group in groups])
    if layout != "padded":
        return _one_row(rows, media, packed=layout == "packed")
    width = max(len(row.token_ids) for row in rows)
    starts = [number * width for number in range(len(rows))]
    return Rows(
        input_ids=torch.stack([_pad(row.token_ids, width, pad_token_id) for row in rows]),
        position_ids=_axes(torch.stack([_pad(row.position_ids, width, 0) for row in rows], dim=1)),
        attention=torch.stack([_pad(torch.ones_like(row.token_ids), width, 0) for row in rows]),
        media=media,
        **_actions(rows, starts),
    )


class _Row:
    """The tokens of one group, or of one sample."""

    def __init__(self, group: PromptGroup, positions: PositionRule) -> None:
        prompt = group.prompt_ids
        prompt_positions = positions.prompt_positions(prompt, group.media)
        after = int(prompt_positions.max()) + 1
        self.prompt_length = len(prompt)
        self.responses = group.responses
        self.token_ids = torch.cat([prompt, *group.responses])
        steps = torch.cat([torch.arange(len(r)) for r in group.responses])
        response_positions = (steps + after).expand(len(prompt_positions), -1)
        axes = torch.cat([prompt_positions, response_positions], dim=1)
        text = torch.cat([torch.arange(len(prompt)), steps + len(prompt)])
        self.position_ids = axes if len(axes) == 1 else torch.cat([text[None], axes])

    def action_columns(self) -> list[Tensor]:
        """For each response, the tokens that predict it: the prompt's last, then its own."""
        columns, start = [], self.prompt_length
        for response in self.responses:
            own = torch.arange(start, start + len(response) - 1)
            columns.append(torch.cat([torch.tensor([self.prompt_length - 1]), own]))
            start += len(response)
        return columns


def _one_row(rows: Sequence[_Row], media: Mapping[str, Tensor], *, packed: bool) -> Rows:
    """All groups one behind another; packed samples are causal as a whole."""
    lengths = [len(row.token_ids) for row in rows]
    starts = [stop - length for stop, length in zip(accumulate(lengths), lengths, strict=True)]
    if packed:
        attention = RowAttention.of_groups([(length, ()) for length in lengths])
    else:
        attention = RowAttention.of_groups(
            [(row.prompt_length, [len(response) for response in row.responses]) for row in rows]
        )
    return Rows(
        input_ids=torch.cat([row.token_ids for row in rows])[None],
        position_ids=_axes(torch.cat([row.position_ids for row in rows], dim=1)[:, None]),
        attention=attention,
        media=media,
        **_actions(rows, starts),
    )


def _actions(rows: Sequence[_Row], starts: Sequence[int]) -> dict[str, Tensor]:
    """`starts` says where the rows' tokens begin among all of the pass."""
    columns = [
        column + start
        for row, start in zip(rows, starts, strict=True)
        for column in row.action_columns()
    ]
    responses = [response for row in rows for response in row.responses]
    longest = max(len(response) for response in responses)
    lengths = torch.tensor([len(response) for response in responses])
    return {
        "action_columns": torch.stack([_pad(c, longest, 0) for c in columns]),
        "action_ids": torch.stack([_pad(r, longest, 0) for r in responses]),
        "action_mask": torch.arange(longest)[None] < lengths[:, None],
    }


def _pad(tensor: Tensor, length: int, value: int) -> Tensor:
    """Right-pad the last dimension."""
    return torch.nn.functional.pad(tensor, (0, length - tensor.shape[-1]), value=value)


def _axes(positions: Tensor) -> Tensor:
    """(R, T) from one axis, (axes, R, T) from several."""
    return positions[0] if len(positions) == 1 else positions


def _concatenate_media(media: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join the groups' media inputs along their first dimension, in row order."""
    names = sorted({name for inputs in media for name in inputs})
    return {name: concatenate_padded([m[name] for m in media if name in m]) for name in names}


def concatenate_padded(parts: Sequence[Tensor]) -> Tensor:
    """Along the first dimension; the others get zeros up to the largest.

    Families that cut an image into tiles take all-zero ones for padding.
    """
    sizes = [max(part.shape[axis] for part in parts) for axis in range(1, parts[0].dim())]
    return torch.cat([_widened(part, sizes) for part in parts])


def _widened(part: Tensor, sizes: Sequence[int]) -> Tensor:
    missing = [size - own for size, own in zip(sizes, part.shape[1:], strict=True)]
    if not any(missing):
        return part
    return torch.nn.functional.pad(part, [n for extra in reversed(missing) for n in (0, extra)])
