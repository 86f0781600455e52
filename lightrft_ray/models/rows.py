"""Rows of a forward pass, built from prompt groups.

A group is one prompt and the responses sampled from it. In the layout ``shared_prefix`` a row is
[prompt, response 1, …, response n]: every response attends to the prompt and to itself, and its
positions go on from the prompt's end, so that the prompt and its images are computed once for all
n. The results equal those of n separate rows. In ``padded`` each sample has a row of its own, as
every model family and attention kernel can run it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lightrft_ray.models.positions import PositionRule

RowLayout = Literal["shared_prefix", "padded"]


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
    `attention_mask` (R, 1, T, T) bool, or (R, T) in the padded layout. `action_columns` (N, A)
    indexes the R·T hidden states that predict `action_ids` (N, A); `action_mask` (N, A) is False
    behind the end of a response. N samples, in the order of groups and responses.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor
    media: Mapping[str, Tensor]
    action_columns: Tensor
    action_ids: Tensor
    action_mask: Tensor

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        moved = {
            name: value.to(device) for name, value in vars(self).items() if torch.is_tensor(value)
        }
        return replace(self, media={k: v.to(device) for k, v in self.media.items()}, **moved)


def build_rows(
    groups: Sequence[PromptGroup], layout: RowLayout, positions: PositionRule, pad_token_id: int
) -> Rows:
    """Rows for a micro-batch of groups. Raises ValueError for an empty response."""
    if any(len(response) == 0 for group in groups for response in group.responses):
        raise ValueError("a response has no tokens: at least its stop token is one")
    if layout == "padded":
        groups = [
            replace(group, responses=[response]) for group in groups for response in group.responses
        ]
    rows = [_Row(group, positions) for group in groups]
    width = max(len(row.token_ids) for row in rows)
    if layout == "padded":
        attention_mask = torch.stack([_pad(torch.ones_like(r.token_ids), width, 0) for r in rows])
    else:
        attention_mask = torch.stack([row.attention(width) for row in rows])[:, None]
    return Rows(
        input_ids=torch.stack([_pad(row.token_ids, width, pad_token_id) for row in rows]),
        position_ids=_stack_positions([row.position_ids for row in rows], width),
        attention_mask=attention_mask,
        media=_concatenate_media([group.media for group in groups]),
        **_actions(rows, width),
    )


class _Row:
    """The tokens of one row: the prompt is segment 0, response i is segment i + 1."""

    def __init__(self, group: PromptGroup, positions: PositionRule) -> None:
        prompt = group.prompt_ids
        prompt_positions = positions.prompt_positions(prompt, group.media)
        after = int(prompt_positions.max()) + 1
        self.prompt_length = len(prompt)
        self.responses = group.responses
        lengths = torch.tensor([len(prompt), *(len(r) for r in group.responses)])
        self.token_ids = torch.cat([prompt, *group.responses])
        self.segments = torch.arange(len(lengths)).repeat_interleave(lengths)
        steps = torch.cat([torch.arange(len(r)) for r in group.responses])
        response_positions = (steps + after).expand(len(prompt_positions), -1)
        axes = torch.cat([prompt_positions, response_positions], dim=1)
        text = torch.cat([torch.arange(len(prompt)), steps + len(prompt)])
        self.position_ids = axes if len(axes) == 1 else torch.cat([text[None], axes])

    def attention(self, width: int) -> Tensor:
        """(T, T) bool: True where the row's token may attend to the column's.

        Padding attends to itself alone: a row without any column would give NaN in softmax.
        """
        length = len(self.token_ids)
        same = self.segments[:, None] == self.segments[None]
        allowed = torch.eye(width, dtype=torch.bool)
        allowed[:length, :length] = (same | (self.segments == 0)[None]).tril()
        return allowed

    def action_columns(self) -> list[Tensor]:
        """For each response, the tokens that predict it: the prompt's last, then its own."""
        columns, start = [], self.prompt_length
        for response in self.responses:
            own = torch.arange(start, start + len(response) - 1)
            columns.append(torch.cat([torch.tensor([self.prompt_length - 1]), own]))
            start += len(response)
        return columns


def _actions(rows: Sequence[_Row], width: int) -> dict[str, Tensor]:
    columns = [c + i * width for i, row in enumerate(rows) for c in row.action_columns()]
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


def _stack_positions(positions: Sequence[Tensor], width: int) -> Tensor:
    """(R, T) from one axis, (axes, R, T) from several."""
    stacked = torch.stack([_pad(p, width, 0) for p in positions], dim=1)
    return stacked[0] if len(stacked) == 1 else stacked


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
