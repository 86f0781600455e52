"""What is known of model families by their configuration."""

from collections.abc import Mapping
from inspect import signature

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from lightrft_ray.config.errors import UserError

# What model configurations call the tokens that stand for pixels or enclose them.
_PLACEHOLDER_SETTINGS = (
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "video_token_index",
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)

MORE_MEDIA = ("second_per_grid_ts", "image_sizes", "pixel_attention_mask", "batch_num_images")
"""Media inputs of some families beside pixels and grids."""

# Their attention tells the samples of a packed row apart by position ids that restart.
PACKABLE = (
    "gemma3_text",
    "idefics3",
    "internvl",
    "llama",
    "llava_onevision",
    "mistral",
    "phi3",
    "qwen2",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3",
    "qwen3_moe",
    "qwen3_vl",
)

WITHOUT_ADAPTERS = ("llava_onevision",)
"""Families of which vLLM loads no adapters, though our learners train them."""


def forbidden_token_ids(config: PretrainedConfig) -> tuple[int, ...]:
    """Ids of image, video and vision placeholders, sorted: they must never be sampled.

    A sampled placeholder stands for pixels that do not exist, and the model's next pass fails.
    """
    ids = (getattr(config, setting, None) for setting in _PLACEHOLDER_SETTINGS)
    return tuple(sorted({each for each in ids if each is not None}))


def config_of(model: nn.Module) -> PretrainedConfig | None:
    """A Hugging Face model's configuration; None of any other module."""
    config = getattr(model, "config", None)
    return config if isinstance(config, PretrainedConfig) else None


def check_packable(model: nn.Module) -> None:
    """Raise UserError for a family whose samples would see each other in a packed row."""
    family = getattr(config_of(model), "model_type", type(model).__name__)
    if family not in PACKABLE:
        raise UserError(
            f"packing_samples: models of the family {family!r} cannot be packed; "
            f"those that can are {', '.join(PACKABLE)}"
        )


def check_rows_of_many(config: PretrainedConfig, setting: str) -> None:
    """The same for `trainer.row_layout`, by the configuration of the checkpoint at `setting`."""
    if config.model_type not in PACKABLE:
        raise UserError(
            f"trainer.row_layout: models of the family {config.model_type!r} ({setting}) cannot "
            f"keep the samples of one row apart: set it to padded; those that can are "
            f"{', '.join(PACKABLE)}"
        )


def accepts(model: nn.Module, argument: str) -> bool:
    """Whether the module's forward names this argument."""
    return argument in signature(model.forward).parameters


def unwrapped(model: nn.Module) -> nn.Module:
    """The Hugging Face model inside a peft model; any other module is its own."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def hugging_face_model(model: nn.Module) -> PreTrainedModel:
    """The same, for what only Hugging Face models can do; UserError for any other module."""
    inner = unwrapped(model)
    if not isinstance(inner, PreTrainedModel):
        raise UserError(f"this takes a Hugging Face model, not a {type(inner).__name__}")
    return inner


def media_inputs(model: nn.Module, media: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The media that are there, pixels in the model's type.

    Raises UserError for media that the model does not take.
    """
    inner = unwrapped(model)
    given = {name: value for name, value in media.items() if value is not None}
    for name in given:
        if not accepts(inner, name):
            family = getattr(config_of(inner), "model_type", type(inner).__name__)
            raise UserError(
                f"{name}: models of the family {family!r} do not see it; "
                "give a vision-language model, or text alone"
            )
    dtype = getattr(inner, "dtype", torch.float32)
    return {
        name: value.to(dtype) if name.startswith("pixel_values") else value
        for name, value in given.items()
    }


def token_type_inputs(model: nn.Module, input_ids: Tensor) -> dict[str, Tensor]:
    """The ids that mark image (1) and video (2) tokens, under the name that the model takes."""
    config = config_of(model)
    types = torch.zeros_like(input_ids)
    for medium, value in (("image", 1), ("video", 2)):
        token = getattr(
            config, f"{medium}_token_id", getattr(config, f"{medium}_token_index", None)
        )
        if token is not None:
            types = types.masked_fill(input_ids == token, value)
    takes = {
        "mm_token_type_ids": accepts(model, "mm_token_type_ids"),
        "token_type_ids": getattr(config, "model_type", "") == "gemma3",
    }
    return {name: types for name, is_taken in takes.items() if is_taken}
