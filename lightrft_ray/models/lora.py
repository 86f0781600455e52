"""Low-rank adapters (Hu et al. 2021, 2106.09685) by peft."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from lightrft_ray.config.errors import UserError

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class LoraSettings:
    """`target_modules` None: every linear layer of the language model.

    With `vision_tower` the layers of the vision tower count, too.
    """

    rank: int
    alpha: int
    dropout: float
    target_modules: Sequence[str] | None = None
    vision_tower: bool = False


def add_lora(model: PreTrainedModel, settings: LoraSettings) -> PeftModel:
    """The model as a peft model in which the adapters alone train.

    Raises UserError for target modules that match nothing.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=_target_modules(model, settings),
        bias="none",
    )
    adapted = get_peft_model(model, config)
    # Checkpointed blocks need an input with a gradient, and the embeddings are frozen now.
    adapted.enable_input_require_grads()
    return adapted


def _target_modules(model: PreTrainedModel, settings: LoraSettings) -> list[str]:
    candidates = _linear_layers(model, include_vision=settings.vision_tower)
    if settings.target_modules is None:
        return candidates
    chosen: list[str] = []
    for target in settings.target_modules:
        own = [name for name in candidates if name == target or name.endswith(f".{target}")]
        if not own:
            raise UserError(f"target_modules {target}: {_no_match(target, candidates)}")
        chosen += own
    return chosen


def _linear_layers(model: PreTrainedModel, *, include_vision: bool) -> list[str]:
    """Full names; the output head is left out, as its adapters would break tied embeddings."""
    head = model.get_output_embeddings()
    searched = model if include_vision else model.get_decoder()
    within = {id(module) for module in searched.modules()}
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head and id(module) in within
    ]


def _no_match(target: str, candidates: Sequence[str]) -> str:
    known = sorted({name.rpartition(".")[2] for name in candidates})
    nearest = difflib.get_close_matches(target, known, n=1, cutoff=0.0)
    return f"no linear layer of the language model ends so; the nearest is {nearest[0]}"
