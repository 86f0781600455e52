"""Position ids: the golden M-RoPE vectors, and which model follows which rule."""

from typing import Any

import pytest
import torch
from golden_cases import Case, load, run
from torch import Tensor
from transformers import (
    Glm4vConfig,
    Qwen2_5_VLConfig,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen3VLConfig,
)

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.positions import (
    MRopePositions,
    PositionRule,
    TextPositions,
    position_rule,
)

_IMAGE, _VIDEO = 7, 8
_RULE = MRopePositions(_IMAGE, _VIDEO, spatial_merge_size=2, tokens_per_second=2)
_NOT_NEEDED = ("vision_start_token_id", "vision_end_token_id", "pad_token_id")


def _rule(case: Case) -> PositionRule:
    style = case.param("style")
    assert style in ("qwen2_5_vl", "qwen3_vl")
    for name in _NOT_NEEDED:
        case.param(name)
    return MRopePositions(
        image_token_id=case.param("image_token_id"),
        video_token_id=case.param("video_token_id"),
        spatial_merge_size=case.param("spatial_merge_size"),
        tokens_per_second=case.param("tokens_per_second"),
        frame_by_frame=style == "qwen3_vl",
    )


def _check_token_types(case: Case, ids: Tensor) -> None:
    """The rule reads a token's type off its id; the file gives it as an input of its own."""
    types = (ids == case.param("image_token_id")) + 2 * (ids == case.param("video_token_id"))
    assert torch.equal(types, case.integers("mm_token_type_ids"))


class _MediaOfRows:
    """Hands out a case's grids row by row: as many as a row's placeholders use up."""

    def __init__(self, case: Case) -> None:
        self._merge = case.param("spatial_merge_size") ** 2
        self._tokens = {kind: case.param(f"{kind}_token_id") for kind in ("image", "video")}
        self._grids = {
            kind: list(case.raw_input(f"{kind}_grid_thw") or []) for kind in ("image", "video")
        }
        self._seconds = case.raw_input("second_per_grid_ts")

    def of_row(self, ids: Tensor) -> dict[str, Tensor]:
        media = {}
        for kind, token in self._tokens.items():
            needed, grids = int((ids == token).sum()), []
            while needed > 0:
                grids.append(self._grids[kind].pop(0))
                needed -= grids[-1][0] * grids[-1][1] * grids[-1][2] // self._merge
            if grids:
                media[f"{kind}_grid_thw"] = torch.tensor(grids)
            if kind == "video" and grids and self._seconds is not None:
                media["second_per_grid_ts"] = torch.tensor(self._seconds[: len(grids)])
                self._seconds = self._seconds[len(grids) :]
        return media

    def all_used(self) -> bool:
        return not any(self._grids.values()) and not self._seconds


def _rope_index(case: Case) -> dict[str, Any]:
    rule, media = _rule(case), _MediaOfRows(case)
    ids, real = case.integers("input_ids"), case.integers("attention_mask").bool()
    _check_token_types(case, ids)
    positions = torch.tensor(case.raw["expected"]["position_ids"])  # padding is not compared
    deltas = []
    for row, (row_ids, row_real) in enumerate(zip(ids, real, strict=True)):
        tokens = row_ids[row_real]
        computed = rule.prompt_positions(tokens, media.of_row(tokens))
        positions[:, row, row_real] = computed
        deltas.append(int(computed.max()) + 1 - len(tokens))
    assert media.all_used()
    return {"position_ids": positions, "rope_delta": deltas}


@pytest.mark.parametrize("case", load("mrope"), ids=str)
def test_golden_mrope(case: Case) -> None:
    run(case, torch.float32, {"rope_index": _rope_index})


def test_time_steps_do_not_round_up_to_the_next_id() -> None:
    """0.7 s in float32 is a little less: frame 5 is at 6.9999 and has the id 6, as in vLLM."""
    media = {
        "video_grid_thw": torch.tensor([[6, 2, 2]]),
        "second_per_grid_ts": torch.tensor([0.7]),
    }
    time = _RULE.prompt_positions(torch.full((6,), _VIDEO), media)[0]
    assert time.tolist() == [0, 1, 2, 4, 5, 6]


def test_qwen2_vl_counts_frames() -> None:
    rule = MRopePositions(_IMAGE, _VIDEO, spatial_merge_size=2)
    media = {
        "video_grid_thw": torch.tensor([[3, 2, 2]]),
        "second_per_grid_ts": torch.tensor([5.0]),
    }
    time = rule.prompt_positions(torch.tensor([1, _VIDEO, _VIDEO, _VIDEO, 1]), media)[0]
    assert time.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("ids", "grids"),
    [
        ([1, _IMAGE, 1], None),
        ([1, _IMAGE, _IMAGE, 1], [[1, 2, 2]]),
        ([1, _IMAGE, 1], [[1, 2, 4]]),
        ([1, _IMAGE, 1], [[1, 2, 2], [1, 2, 2]]),
        ([1, 1], [[1, 2, 2]]),
        ([_IMAGE, 1, _IMAGE], [[1, 2, 4]]),
    ],
    ids=["no-grid", "too-many", "too-few", "second-missing", "none", "torn-apart"],
)
def test_placeholders_that_do_not_fit_the_grids(
    ids: list[int], grids: list[list[int]] | None
) -> None:
    media = {} if grids is None else {"image_grid_thw": torch.tensor(grids)}
    with pytest.raises(ValueError, match=f"placeholders of token {_IMAGE}"):
        _RULE.prompt_positions(torch.tensor(ids), media)


def test_text_models_count_tokens() -> None:
    rule = position_rule(Qwen2Config())
    assert rule == TextPositions()
    assert rule.prompt_positions(torch.tensor([5, 5, 5]), {}).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("config", "tokens_per_second"),
    [
        (Qwen2VLConfig(image_token_id=_IMAGE, video_token_id=_VIDEO), None),
        (
            Qwen2_5_VLConfig(
                image_token_id=_IMAGE,
                video_token_id=_VIDEO,
                vision_config={"tokens_per_second": 2},
            ),
            2,
        ),
    ],
    ids=["qwen2_vl", "qwen2_5_vl"],
)
def test_rules_of_qwen_vl_models(config: Any, tokens_per_second: int | None) -> None:
    # Published checkpoints say so in config.json; the classes' own defaults leave it out.
    config.text_config.rope_parameters = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    assert position_rule(config) == MRopePositions(
        _IMAGE, _VIDEO, spatial_merge_size=2, tokens_per_second=tokens_per_second
    )


def test_qwen3_vl_takes_a_video_frame_by_frame() -> None:
    config = Qwen3VLConfig(image_token_id=_IMAGE, video_token_id=_VIDEO)
    config.text_config.rope_parameters = {"rope_type": "default", "mrope_section": [24, 20, 20]}
    assert position_rule(config) == MRopePositions(
        _IMAGE, _VIDEO, spatial_merge_size=2, frame_by_frame=True
    )


def test_an_unknown_family_with_mrope_is_refused() -> None:
    config = Glm4vConfig()
    config.text_config.rope_parameters = {"rope_type": "default", "mrope_section": [8, 12, 12]}
    with pytest.raises(UserError, match=r"'glm4v' use M-RoPE .* supported: qwen2_vl, qwen2_5_vl"):
        position_rule(config)
