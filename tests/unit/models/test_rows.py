"""Rows: which token sees which, where its position lies, and which states predict the actions."""

from dataclasses import is_dataclass, replace
from typing import get_args

import pytest
import torch
from tiny_models import IMAGE, PAD, VIDEO, prompt_group
from torch import Tensor

from lightrft_ray.models.positions import MRopePositions, TextPositions
from lightrft_ray.models.row_attention import RowAttention
from lightrft_ray.models.rows import PromptGroup, RowLayout, Rows, build_rows

_GROUPS = [
    PromptGroup(torch.tensor([11, 12]), [torch.tensor([21, 22]), torch.tensor([31])], {}),
    PromptGroup(torch.tensor([13, 14, 15]), [torch.tensor([41, 42, 43])], {}),
]


def _predicting_tokens(rows_ids: Tensor, columns: Tensor, mask: Tensor) -> list[list[int]]:
    ids = rows_ids.flatten()[columns]
    return [row[used].tolist() for row, used in zip(ids, mask, strict=True)]


def _visible(rows: Rows) -> list[list[int]]:
    attention = rows.attention
    assert isinstance(attention, RowAttention)
    return (attention.dense_mask(torch.float32)[0, 0] == 0).int().tolist()


def test_shared_prefix_rows() -> None:
    rows = build_rows(_GROUPS, "shared_prefix", TextPositions(), PAD)
    assert rows.input_ids.tolist() == [[11, 12, 21, 22, 31, 13, 14, 15, 41, 42, 43]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 3, 2, 0, 1, 2, 3, 4, 5]]
    visible = _visible(rows)
    assert visible[:5] == [
        [1, 0, 0, 0, 0, *[0] * 6],
        [1, 1, 0, 0, 0, *[0] * 6],
        [1, 1, 1, 0, 0, *[0] * 6],
        [1, 1, 1, 1, 0, *[0] * 6],
        [1, 1, 0, 0, 1, *[0] * 6],  # the second response does not see the first
    ]
    assert [row[:5] for row in visible[5:]] == [[0] * 5] * 6  # nor a group the other
    assert [row[5:] for row in visible[5:]] == torch.ones(6, 6).tril().int().tolist()


def test_packed_rows() -> None:
    rows = build_rows(_GROUPS, "packed", TextPositions(), PAD)
    assert rows.input_ids.tolist() == [[11, 12, 21, 22, 11, 12, 31, 13, 14, 15, 41, 42, 43]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4, 5]]
    blocks = [torch.ones(size, size).tril() for size in (4, 3, 6)]
    assert _visible(rows) == torch.block_diag(*blocks).int().tolist()


def test_padded_rows() -> None:
    rows = build_rows(_GROUPS, "padded", TextPositions(), PAD)
    assert rows.input_ids.tolist() == [
        [11, 12, 21, 22, PAD, PAD],
        [11, 12, 31, PAD, PAD, PAD],
        [13, 14, 15, 41, 42, 43],
    ]
    assert rows.attention.sum(dim=1).tolist() == [4, 3, 6]
    assert rows.position_ids[1].tolist() == [0, 1, 2, 0, 0, 0]


@pytest.mark.parametrize("layout", get_args(RowLayout))
def test_actions_are_predicted_by_the_token_before_them(layout: RowLayout) -> None:
    rows = build_rows(_GROUPS, layout, TextPositions(), PAD)
    assert rows.action_mask.int().tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 1]]
    assert rows.action_ids.where(rows.action_mask, -1).tolist() == [
        [21, 22, -1],
        [31, -1, -1],
        [41, 42, 43],
    ]
    before = _predicting_tokens(rows.input_ids, rows.action_columns, rows.action_mask)
    assert before == [[12, 21], [12], [15, 41, 42]]


@pytest.mark.parametrize(("layout", "copies"), [("shared_prefix", 1), ("packed", 3), ("padded", 3)])
def test_images_come_once_a_row_in_row_order(layout: RowLayout, copies: int) -> None:
    groups = [
        prompt_group(1, 4, [2, 2, 1], [(2, 4)]),
        prompt_group(2, 4, [1, 1, 1]),
        prompt_group(3, 4, [1, 2, 3], [(4, 4), (2, 2)]),
    ]
    rows = build_rows(groups, layout, MRopePositions(IMAGE, VIDEO, 2), PAD)
    grids = [[1, 2, 4]] * copies + [[1, 4, 4], [1, 2, 2]] * copies
    assert rows.media["image_grid_thw"].tolist() == grids
    pixels = [group.media["pixel_values"] for group in groups if group.media]
    expected = torch.cat([pixels[0]] * copies + [pixels[1]] * copies)
    assert torch.equal(rows.media["pixel_values"], expected)


@pytest.mark.parametrize("layout", get_args(RowLayout))
def test_mrope_goes_on_from_the_prompts_largest_id(layout: RowLayout) -> None:
    """Four axes, text positions first: they count tokens, the others jump over the image."""
    prompt = torch.tensor([2, IMAGE, IMAGE, IMAGE, IMAGE])
    media = {"image_grid_thw": torch.tensor([[1, 4, 4]])}
    group = PromptGroup(prompt, [torch.tensor([3, 4])], media)
    rows = build_rows([group], layout, MRopePositions(IMAGE, VIDEO, 2), PAD)
    assert rows.position_ids[:, 0].tolist() == [
        [0, 1, 2, 3, 4, 5, 6],
        [0, 1, 1, 1, 1, 3, 4],
        [0, 1, 1, 2, 2, 3, 4],
        [0, 1, 2, 1, 2, 3, 4],
    ]


@pytest.mark.parametrize("layout", get_args(RowLayout))
def test_an_empty_response_is_refused(layout: RowLayout) -> None:
    empty = replace(_GROUPS[0], responses=[torch.tensor([21]), torch.tensor([], dtype=torch.long)])
    with pytest.raises(ValueError, match="a response has no tokens"):
        build_rows([_GROUPS[1], empty], layout, TextPositions(), PAD)


@pytest.mark.parametrize("layout", get_args(RowLayout))
def test_moving_rows_moves_every_tensor(layout: RowLayout) -> None:
    rows = build_rows(
        [prompt_group(1, 4, [2, 3], [(2, 4)])], layout, MRopePositions(60, 61, 2), PAD
    )
    moved = rows.to(torch.device("meta"))
    assert all(tensor.is_meta for tensor in _tensors(moved))
    assert len(_tensors(moved)) == len(_tensors(rows))


def _tensors(value: object) -> list[Tensor]:
    """All tensors within a value."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict | tuple):
        parts = list(value.values()) if isinstance(value, dict) else list(value)
    else:
        parts = list(vars(value).values()) if is_dataclass(value) else []
    return [tensor for part in parts for tensor in _tensors(part)]
