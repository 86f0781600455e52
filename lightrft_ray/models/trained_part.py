"""What a run trains of its policy: adapters, or all that is not frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from lightrft_ray.config import ModelConfig
from lightrft_ray.models.freezing import Freezing, freeze
from lightrft_ray.models.lora import LoraSettings, add_lora

if TYPE_CHECKING:
    from peft import PeftModel


def leave_to_train(
    model: PreTrainedModel, config: ModelConfig, seed: int
) -> PreTrainedModel | PeftModel:
    """Give the policy its adapters, the same for a seed, or freeze what is to be frozen.

    Returns what saves the part that trains: peft's model around the policy, or itself.
    Raises UserError for parts, patterns or target modules that the model has not.
    """
    if config.lora_rank == 0:
        freeze(model, Freezing.of_policy(config))
        return model
    settings = LoraSettings(
        config.lora_rank, config.lora_alpha, config.lora_dropout, config.target_modules
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return add_lora(model, settings)  # puts them into the model's own layers


def trains_all(config: ModelConfig) -> bool:
    """Whether all of the policy trains."""
    return config.lora_rank == 0 and Freezing.of_policy(config) == Freezing()
