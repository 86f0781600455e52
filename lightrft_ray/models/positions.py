"""Position ids of one sequence: 1-D for text models, M-RoPE for the Qwen2-VL families.

M-RoPE (Qwen2-VL, arXiv 2409.12191; Qwen2.5-VL, 2502.13923; Qwen3-VL, 2511.21631) gives each token
three ids: time, height and width. They are computed here and not by transformers, whose rule for
videos that are longer in time than in space differs from the papers' and from vLLM's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lightrft_ray.config.errors import UserError

_FRAME_BY_FRAME = ("qwen3_vl", "qwen3_vl_moe")
_MROPE_FAMILIES = ("qwen2_vl", "qwen2_5_vl", *_FRAME_BY_FRAME)


class PositionRule(Protocol):
    """Gives the position ids of a prompt and says how a response goes on from them."""

    def prompt_positions(self, token_ids: Tensor, media: Mapping[str, Tensor]) -> Tensor:
        """Ids (axes, P) of the P tokens of a prompt, for its media inputs."""
        ...


@dataclass(frozen=True)
class TextPositions:
    """One axis that counts tokens."""

    def prompt_positions(self, token_ids: Tensor, media: Mapping[str, Tensor]) -> Tensor:  # noqa: ARG002
        """Ids (1, P): 0, 1, 2, …"""
        return torch.arange(len(token_ids))[None]


@dataclass(frozen=True)
class MRopePositions:
    """Three axes (time, height, width); a vision block takes the ids of its merged grid."""

    image_token_id: int
    video_token_id: int
    spatial_merge_size: int
    tokens_per_second: float | None = None  # of videos; None (Qwen2-VL): frames count as steps
    frame_by_frame: bool = False  # Qwen3-VL: time stands in the text before each frame of a video

    def prompt_positions(self, token_ids: Tensor, media: Mapping[str, Tensor]) -> Tensor:
        """Ids (3, P); `media` may hold image_grid_thw, video_grid_thw and second_per_grid_ts.

        Raises ValueError where the placeholder tokens and the grids do not match.
        """
        pieces: list[Tensor] = []
        next_id, cursor = 0, 0
        for start, grid, step in self._vision_blocks(token_ids, media):
            text = torch.arange(start - cursor).expand(3, -1) + next_id
            block = _grid_positions(grid, step) + next_id + (start - cursor)
            pieces += [text, block]
            next_id = int(block.max()) + 1
            cursor = start + block.shape[1]
        tail = torch.arange(len(token_ids) - cursor).expand(3, -1) + next_id
        return torch.cat([*pieces, tail], dim=1)

    def _vision_blocks(
        self, token_ids: Tensor, media: Mapping[str, Tensor]
    ) -> list[tuple[int, tuple[int, int, int], float]]:
        """(first token, merged grid, time step) of each image and video, in token order."""
        blocks: list[tuple[int, tuple[int, int, int], float]] = []
        videos = media.get("video_grid_thw")
        if videos is not None and self.frame_by_frame:
            videos = _frames(videos)
        for token, grids, steps in (
            (self.image_token_id, media.get("image_grid_thw"), None),
            (self.video_token_id, videos, media.get("second_per_grid_ts")),
        ):
            where = torch.nonzero(token_ids == token).flatten().tolist()
            used = 0
            for number, (t, h, w) in enumerate([] if grids is None else grids.tolist()):
                grid = (t, h // self.spatial_merge_size, w // self.spatial_merge_size)
                size = grid[0] * grid[1] * grid[2]
                block = where[used : used + size]
                if len(block) < size or block[-1] - block[0] != size - 1:
                    raise ValueError(f"placeholders of token {token} do not fit the grids {grids}")
                blocks.append((block[0], grid, self._time_step(steps, number, token)))
                used += size
            if used != len(where):
                raise ValueError(f"{len(where)} placeholders of token {token}, grids for {used}")
        return sorted(blocks)

    def _time_step(self, seconds: Tensor | None, number: int, token: int) -> float:
        if token == self.image_token_id or self.tokens_per_second is None:
            return 1.0
        return self.tokens_per_second * (1.0 if seconds is None else float(seconds[number]))


def _frames(grids: Tensor) -> Tensor:
    """(Σ t, 3) grids of single frames, from the videos' (videos, 3)."""
    frames = grids.repeat_interleave(grids[:, 0], dim=0)
    frames[:, 0] = 1
    return frames


def _grid_positions(grid: tuple[int, int, int], time_step: float) -> Tensor:
    """Ids (3, t·h·w) of a vision block that starts at 0."""
    t, h, w = grid
    # In float64 as in vLLM: float32 rounds 10 · 0.69999999 up to the next id.
    steps = torch.arange(t, dtype=torch.float64) * time_step
    time = steps.long().repeat_interleave(h * w)
    height = torch.arange(h).repeat_interleave(w).repeat(t)
    width = torch.arange(w).repeat(t * h)
    return torch.stack([time, height, width])


def position_rule(hf_config: object) -> PositionRule:
    """The rule of a model by its Hugging Face configuration.

    Raises UserError for a family with M-RoPE whose rule is not known here: plain positions would
    be silently wrong.
    """
    text = getattr(hf_config, "text_config", hf_config)
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    if "mrope_section" not in rope:
        return TextPositions()
    family = getattr(hf_config, "model_type", "")
    if family not in _MROPE_FAMILIES:
        raise UserError(
            f"models of the family {family!r} use M-RoPE in a way that is not supported yet; "
            f"supported: {', '.join(_MROPE_FAMILIES)}"
        )
    vision = hf_config.vision_config  # type: ignore[attr-defined]
    return MRopePositions(
        image_token_id=hf_config.image_token_id,  # type: ignore[attr-defined]
        video_token_id=hf_config.video_token_id,  # type: ignore[attr-defined]
        spatial_merge_size=vision.spatial_merge_size,
        tokens_per_second=getattr(vision, "tokens_per_second", None),
        frame_by_frame=family in _FRAME_BY_FRAME,
    )
