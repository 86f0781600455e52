"""The configuration of a checkpoint for planning, without its weights and without a network.

Planning must work on a laptop that has never seen the checkpoint, so that the shapes of some
published models come with the project.
"""

import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)

from lightrft_ray.models.loading import ModelSource, load_config, sees_images

_KNOWN = Path(__file__).with_name("known_architectures.json")


def known_architectures() -> dict[str, dict[str, Any]]:
    """Published checkpoints by Hugging Face name: what their sizes follow from."""
    architectures: dict[str, dict[str, Any]] = json.loads(_KNOWN.read_text(encoding="utf-8"))
    return architectures


def planned_config(source: ModelSource, setting: str) -> PretrainedConfig:
    """Of a folder, of the local cache, of a known model, or from the hub, in this order.

    Raises UserError that names the `setting` where none of them has it.
    """
    known = known_architectures().get(source.path)
    is_here = (Path(source.path) / "config.json").is_file()
    if known is None or is_here or try_to_load_from_cache(source.path, "config.json") is not None:
        return load_config(source, setting)
    return AutoConfig.for_model(**known)


def weightless_policy(config: PretrainedConfig) -> PreTrainedModel:
    """The policy on the meta device: names and shapes alone."""
    loader = AutoModelForImageTextToText if sees_images(config) else AutoModelForCausalLM
    with torch.device("meta"):
        return loader.from_config(config)


def weightless_backbone(config: PretrainedConfig) -> PreTrainedModel:
    """What a critic is made of, on the meta device; its value head is one row of hidden size."""
    with torch.device("meta"):
        return AutoModel.from_config(config)


def parameter_count(model: nn.Module) -> int:
    """Elements of all parameters; tied ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
