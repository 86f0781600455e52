"""The weights of a model as it was before it got adapters, and what these add to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

ADAPTER = "default"  # peft's name for the one adapter of a model
_FACTORS = ("lora_A", "lora_B")


@dataclass(frozen=True)
class LoraFactors:
    """A low-rank change of a weight: scaling · B A, transposed where the layer's weight is."""

    a: nn.Parameter
    b: nn.Parameter
    scaling: float
    is_transposed: bool

    def change(self) -> Tensor:
        """The change in float32, shaped as the weight; the factors must be whole."""
        product = self.scaling * (self.b.data.float() @ self.a.data.float())
        return product.T if self.is_transposed else product


@dataclass(frozen=True)
class PlainWeight:
    """A weight by the name that it has without adapters, and the adapter that changes it."""

    name: str
    parameter: nn.Parameter
    factors: LoraFactors | None

    @property
    def trains(self) -> bool:
        """Whether the weight, or what is added to it, may change."""
        return self.factors is not None or self.parameter.requires_grad

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All that `value` reads."""
        of_adapter = [] if self.factors is None else [self.factors.a, self.factors.b]
        return [self.parameter, *of_adapter]

    def value(self) -> Tensor:
        """The weight with its adapter merged in, which leaves both as they are."""
        weight = self.parameter.data
        if self.factors is None:
            return weight
        with torch.no_grad():
            return (weight.float() + self.factors.change()).to(weight.dtype)


def plain_weights(model: nn.Module) -> list[PlainWeight]:
    """All weights of a model, in order; tied ones once, those of adapters with what they change."""
    factors = {f"{name}.weight": found for name, found in lora_factors(model).items()}
    weights = []
    for own, parameter in model.named_parameters():
        if any(part in _FACTORS for part in own.split(".")):
            continue
        name = own.replace(".base_layer.", ".")
        weights.append(PlainWeight(name, parameter, factors.get(name)))
    return weights


def lora_factors(model: nn.Module) -> dict[str, LoraFactors]:
    """The adapters of a model's layers, by the names of the layers."""
    return {
        name: LoraFactors(
            layer.lora_A[ADAPTER].weight,
            layer.lora_B[ADAPTER].weight,
            float(layer.scaling[ADAPTER]),
            bool(getattr(layer, "fan_in_fan_out", False)),
        )
        for name, layer in model.named_modules()
        if hasattr(layer, "base_layer") and ADAPTER in getattr(layer, "lora_A", ())
    }
