"""Value heads, and the models that they are put on."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from lightrft_ray.models.families import config_of, unwrapped
from lightrft_ray.models.loading import hidden_size
from lightrft_ray.models.policy_passes import Batch, make_pass, scored_states


def headless(pretrain_or_model: str | nn.Module) -> str | nn.Module:
    """The backbone of a policy or reward model; a name stays as it is."""
    if isinstance(pretrain_or_model, PreTrainedModel):
        return pretrain_or_model.base_model
    return pretrain_or_model


def value_head_of(backbone: nn.Module) -> nn.Linear:
    """A new float32 head of one output on the backbone's hidden states."""
    config = config_of(unwrapped(backbone))
    if config is None:
        raise ValueError(
            f"a {type(backbone).__name__} has no configuration: give a Hugging Face model"
        )
    width = hidden_size(config)
    head = nn.Linear(width, 1, dtype=torch.float32)
    nn.init.normal_(head.weight, std=1 / (width + 1))
    nn.init.zeros_(head.bias)
    return head.to(next(backbone.parameters()).device)


def value_forward(
    backbone: nn.Module, head: nn.Linear, batch: Batch, *, pack: bool
) -> tuple[Tensor, ModelOutput]:
    """A critic's forward: values in the result's shape, and the backbone's output."""
    scored = make_pass(backbone, batch, pack=pack)
    states, output = scored_states(backbone, scored, batch.media)
    return scored.scatter(head(states.float())[:, 0]), output
