"""How a model is told who sees whom in a row, for each attention implementation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import PretrainedConfig, PreTrainedModel

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.row_attention import ROW_SDPA, RowAttention

AttentionInputs = dict[str, Tensor | BlockMask | RowAttention | None]


def use_row_attention(model: PreTrainedModel) -> None:
    """Let the language model's SDPA layers compute rows block by block.

    Without rows they do what they did; the vision tower is left as it is.
    """
    config = _decoder_config(model)
    if config._attn_implementation == "sdpa":
        config._attn_implementation = ROW_SDPA


def attention_inputs(
    backbone: PreTrainedModel, attention: Tensor | RowAttention, dtype: torch.dtype
) -> AttentionInputs:
    """Arguments of the backbone, which computes in `dtype`, for its attention implementation.

    Raises UserError for one that cannot compute such rows.
    """
    if isinstance(attention, Tensor):
        return {"attention_mask": attention}
    config = _decoder_config(backbone)
    implementation = config._attn_implementation
    if implementation == ROW_SDPA:
        everybody = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=attention.positions.device)
        return {"attention_mask": everybody, "row_attention": attention}
    if implementation == "flash_attention_2" and attention.is_packed:
        return {"attention_mask": None}  # it tells samples apart by positions that restart
    if implementation in ("eager", "flex_attention") and not _has_sliding_window(config):
        is_eager = implementation == "eager"
        mask = attention.dense_mask(dtype) if is_eager else attention.block_mask()
        return {"attention_mask": mask}
    raise UserError(
        f"trainer.row_layout: attention {implementation!r} of the family {config.model_type!r} "
        "cannot compute rows of many samples: set it to padded, or model.attn_implementation to "
        "sdpa"
    )


def check_attention_ran(backbone: PreTrainedModel, attention: Tensor | RowAttention) -> None:
    """Raise UserError where layers did not get the row's attention: samples would mix silently."""
    if isinstance(attention, Tensor):
        return
    config = _decoder_config(backbone)
    calls = len(attention.calls)
    attention.calls.clear()
    if config._attn_implementation == ROW_SDPA and calls != config.num_hidden_layers:
        raise UserError(
            f"trainer.row_layout: {calls} of {config.num_hidden_layers} layers of the family "
            f"{config.model_type!r} can keep the samples of a row apart: set it to padded"
        )


def _decoder_config(model: PreTrainedModel) -> PretrainedConfig:
    """Of the language model, whose layers look up their attention in it."""
    return model.get_decoder().config


def _has_sliding_window(config: PretrainedConfig) -> bool:
    """Whether any layer sees the last positions alone, which a given mask would hide from it."""
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    return getattr(config, "sliding_window", None) is not None and "sliding_attention" in kinds
