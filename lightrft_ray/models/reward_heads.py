"""The heads of scalar reward models, and how checkpoints keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.utils.hub import cached_file

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.loading import hidden_size

# What checkpoints call the head: transformers' sequence classifiers, and OpenRLHF's reward models.
HEAD_NAMES = ("score", "value_head")
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class Normalization:
    """Rewards become (reward − mean) / std."""

    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def of(cls, config: PretrainedConfig) -> Normalization:
        """That of a checkpoint's configuration (`mean` and `std`); none if it has none."""
        mean, std = getattr(config, "mean", None), getattr(config, "std", None)
        if mean is None or std is None:
            return cls()
        if not std > 0:
            raise UserError(f"reward model: std {std} in its configuration is not above 0")
        return cls(float(mean), float(std))

    def __call__(self, rewards: Tensor) -> Tensor:
        """Normalized rewards, of any shape."""
        return (rewards - self.mean) / self.std


def head_of_checkpoint(path: str, config: PretrainedConfig) -> nn.Linear | None:
    """The float32 head that lies in a checkpoint; None if it has none (a policy).

    Raises UserError for a head that gives more than one number.
    """
    own_name = getattr(config, "value_head_prefix", None)
    names = HEAD_NAMES if own_name is None else (own_name, *HEAD_NAMES)
    wanted = [f"{name}.{part}" for name in names for part in ("weight", "bias")]
    found = _read_tensors(path, wanted)
    name = next((name for name in names if f"{name}.weight" in found), None)
    if name is None:
        return None
    return _as_head(found[f"{name}.weight"], found.get(f"{name}.bias"), f"{path}: {name}", config)


def head_of_module(model: nn.Module, config: PretrainedConfig) -> nn.Linear | None:
    """A copy of a loaded reward model's head, as float32; None if it has none."""
    for name in HEAD_NAMES:
        head = getattr(model, name, None)
        if isinstance(head, nn.Linear):
            where = f"{type(model).__name__}.{name}"
            return _as_head(head.weight, head.bias, where, config)
    return None


def _as_head(
    weight: Tensor, bias: Tensor | None, where: str, config: PretrainedConfig
) -> nn.Linear:
    width = hidden_size(config)
    if weight.shape != (1, width):
        raise UserError(
            f"reward model {where} is {tuple(weight.shape)}: a scalar head is (1, {width})"
        )
    head = nn.Linear(width, 1, bias=bias is not None, dtype=torch.float32)
    with torch.no_grad():
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
    return head


def _read_tensors(path: str, names: Sequence[str]) -> dict[str, Tensor]:
    """Those of the tensors that a checkpoint's safetensors files hold."""
    found: dict[str, Tensor] = {}
    for file, wanted in _files_of(path, names).items():
        with safe_open(file, framework="pt") as tensors:
            held = set(tensors.keys())
            found |= {name: tensors.get_tensor(name) for name in wanted if name in held}
    return found


def _files_of(path: str, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Files to look into, with the names to look for."""
    index = cached_file(path, _INDEX, _raise_exceptions_for_missing_entries=False)
    if index is None:
        single = cached_file(path, _SINGLE, _raise_exceptions_for_missing_entries=False)
        if single is None:
            raise UserError(f"reward model {path}: no safetensors file there")
        return {single: names}
    where = json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"]
    files: dict[str, list[str]] = {}
    for name in names:
        if name in where:
            files.setdefault(str(cached_file(path, where[name])), []).append(name)
    return files
