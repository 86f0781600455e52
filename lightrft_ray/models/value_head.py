"""Value heads, and the models that they are put on."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from lightrft_ray.models.families import hugging_face_model
from lightrft_ray.models.loading import hidden_size


def new_value_head(backbone: nn.Module, generator: torch.Generator | None = None) -> nn.Linear:
    """A small float32 head of one output on the backbone's hidden states.

    Drawn from `generator`, or from torch's own. UserError without a Hugging Face model's width.
    """
    width = hidden_size(hugging_face_model(backbone).config)
    head = nn.Linear(width, 1, dtype=torch.float32)
    nn.init.normal_(head.weight, std=1 / (width + 1), generator=generator)
    nn.init.zeros_(head.bias)
    return head


def headless(pretrain_or_model: str | nn.Module) -> str | nn.Module:
    """The backbone of a policy or reward model; a name stays as it is."""
    if isinstance(pretrain_or_model, PreTrainedModel):
        return pretrain_or_model.base_model
    return pretrain_or_model
