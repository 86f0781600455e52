"""Loading Hugging Face checkpoints as policies and as backbones of critics."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)

from lightrft_ray.config.errors import UserError


@dataclass(frozen=True)
class ModelSource:
    """A checkpoint and how to load it: `path` is a folder or a Hugging Face name."""

    path: str
    dtype: torch.dtype = torch.float32
    attn_implementation: str = "sdpa"
    trust_remote_code: bool = False


def load_config(source: ModelSource) -> PretrainedConfig:
    """The checkpoint's configuration; UserError where there is no checkpoint."""
    folder = Path(source.path)
    is_folder = folder.is_absolute() or folder.exists() or source.path.startswith(".")
    if is_folder and not (folder / "config.json").is_file():
        raise UserError(
            f"model.pretrain {source.path}: no checkpoint there (no config.json); "
            "give a Hugging Face folder or name"
        )
    try:
        return AutoConfig.from_pretrained(source.path, trust_remote_code=source.trust_remote_code)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise UserError(f"model.pretrain {source.path}: cannot be read: {first_line}") from error


def sees_images(config: PretrainedConfig) -> bool:
    """Whether the checkpoint is a vision-language model."""
    return type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


def load_policy(source: ModelSource) -> PreTrainedModel:
    """The language model with its head, vision tower included where there is one."""
    loader = (
        AutoModelForImageTextToText if sees_images(load_config(source)) else AutoModelForCausalLM
    )
    return loader.from_pretrained(source.path, **_options(source))


def load_backbone(source: ModelSource) -> PreTrainedModel:
    """The model without its language-model head, vision tower included where there is one."""
    load_config(source)
    return AutoModel.from_pretrained(source.path, **_options(source))


def hidden_size(config: PretrainedConfig) -> int:
    """Width of the language model's hidden states."""
    return getattr(config, "text_config", config).hidden_size


def _options(source: ModelSource) -> dict[str, object]:
    return {
        "dtype": source.dtype,
        "attn_implementation": source.attn_implementation,
        "trust_remote_code": source.trust_remote_code,
    }


def enable_gradient_checkpointing(model: PreTrainedModel) -> None:
    """Recompute activations in the backward pass (the non-reentrant kind, as DeepSpeed needs)."""
    model.gradient_checkpointing_enable({"use_reentrant": False})


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that the optimizer updates."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
