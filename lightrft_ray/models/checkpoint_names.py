"""Weights by the names, and in the pieces, that published checkpoints have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion

from lightrft_ray.models.plain_weights import plain_weights


def checkpoint_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Some of a model's weights as its checkpoint has them, where it is a Hugging Face model.

    transformers renames and joins weights as it loads them (the experts of a layer become one);
    generators load what checkpoints hold.
    """
    if not isinstance(model, PreTrainedModel):
        return dict(weights)
    if not hasattr(model, "_weight_conversions"):  # sharded, or not from a checkpoint
        model._weight_conversions = get_model_conversion_mapping(  # type: ignore[assignment]
            model, add_legacy=False
        )
    reverted: dict[str, Tensor] = revert_weight_conversion(model, dict(weights))
    return reverted


def checkpoint_names(model: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """What a checkpoint calls these weights, sorted; the model needs no weights of its own."""
    shapes = {weight.name: weight.parameter.shape for weight in plain_weights(model)}
    empty = {name: torch.empty(shapes[name], device="meta") for name in names}
    return sorted(checkpoint_weights(model, empty))
