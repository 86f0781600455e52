"""Freezing parts of a model: what is frozen is neither trained nor published."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate

from transformers import PreTrainedModel

from lightrft_ray.config import ModelConfig
from lightrft_ray.config.errors import UserError

# What families call, somewhere in a parameter's name, their vision tower and what joins it to the
# language model. Qwen-VL's mergers lie inside the tower: the projector is looked for first.
_PROJECTORS = frozenset(
    {"multi_modal_projector", "connector", "merger", "deepstack_merger_list", "image_newline"}
)
_VISION_TOWERS = frozenset({"visual", "vision_tower", "vision_model"})


@dataclass(frozen=True)
class Freezing:
    """What of a model is frozen; `patterns` are globs for whole parameter names."""

    vision_tower: bool = False
    projector: bool = False
    embeddings: bool = False
    patterns: Sequence[str] = ()

    @classmethod
    def of_policy(cls, config: ModelConfig) -> Freezing:
        """What a run freezes of the policy."""
        parts = (config.freeze_vision_tower, config.freeze_projector, config.freeze_embeddings)
        return cls(*parts, config.freeze_patterns)

    @classmethod
    def of_critic(cls, config: ModelConfig) -> Freezing:
        """What a run freezes of the critic: the same parts, but nothing by the policy's names."""
        return cls(config.freeze_vision_tower, config.freeze_projector, config.freeze_embeddings)


def freeze(model: PreTrainedModel, freezing: Freezing) -> None:
    """Freeze the parts. Raises UserError for one that the model has not, and if nothing is left.

    Tied weights are frozen together: with the embeddings a tied output head.
    """
    names = [name for name, _ in model.named_parameters()]
    frozen = set(_frozen_names(model, names, freezing))
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError("model: everything is frozen, so there is nothing to train")


def is_vision_tower(name: str) -> bool:
    """Whether a parameter, by its name, belongs to the vision tower, projector left out."""
    parts = name.split(".")
    return not _PROJECTORS.intersection(parts) and bool(_VISION_TOWERS.intersection(parts))


def is_projector(name: str) -> bool:
    """Whether a parameter, by its name, belongs to what joins vision tower and language model."""
    return bool(_PROJECTORS.intersection(name.split(".")))


def _frozen_names(
    model: PreTrainedModel, names: Sequence[str], freezing: Freezing
) -> Iterable[str]:
    if freezing.vision_tower:
        yield from _part(names, is_vision_tower, "model.freeze_vision_tower", model)
    if freezing.projector:
        yield from _part(names, is_projector, "model.freeze_projector", model)
    if freezing.embeddings:
        embeddings = {id(weight) for weight in model.get_input_embeddings().parameters()}
        yield from (name for name, weight in model.named_parameters() if id(weight) in embeddings)
    for pattern in freezing.patterns:
        yield from _matching(names, pattern)


def _part(
    names: Sequence[str], belongs: Callable[[str], bool], setting: str, model: PreTrainedModel
) -> list[str]:
    chosen = [name for name in names if belongs(name)]
    if not chosen:
        family = model.config.model_type
        raise UserError(f"{setting}: models of the family {family!r} have none; set it to false")
    return chosen


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    chosen = [name for name in names if fnmatchcase(name, pattern)]
    if not chosen:
        raise UserError(
            f"model.freeze_patterns {pattern}: no parameter is called so; the nearest is "
            f"{_nearest(names, pattern)}"
        )
    return chosen


def _nearest(names: Sequence[str], pattern: str) -> str:
    """A module or parameter of the model whose name is most like the pattern's."""
    known = {prefix for name in names for prefix in accumulate(name.split("."), "{}.{}".format)}
    plain = pattern.strip("*").strip(".")
    (nearest,) = difflib.get_close_matches(plain, sorted(known), n=1, cutoff=0.0)
    return nearest if nearest in names else f"{nearest}.*"
