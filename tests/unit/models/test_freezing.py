"""Freezing parts of a model, and which weights are then published."""

import pytest
import torch
from batches import MIXED_GROUPS
from tiny_models import PAD, text_model, vision_model
from torch import nn
from transformers import PreTrainedModel

from lightrft_ray.config import ModelConfig
from lightrft_ray.config.errors import UserError
from lightrft_ray.models.checkpoint_names import checkpoint_names
from lightrft_ray.models.freezing import Freezing, freeze
from lightrft_ray.models.loading import ModelSource, policy_without_weights, trainable_parameters
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import build_rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy
from lightrft_ray.sync.weight_source import published_weights, unpublished_names


def _frozen(model: PreTrainedModel) -> set[str]:
    return {name for name, weight in model.named_parameters() if not weight.requires_grad}


@pytest.mark.parametrize(
    ("freezing", "starts"),
    [
        (Freezing(vision_tower=True), {"model.visual.blocks", "model.visual.patch_embed"}),
        (Freezing(projector=True), {"model.visual.merger"}),
        (Freezing(embeddings=True), {"model.language_model.embed_tokens"}),
        (Freezing(patterns=["*.layers.0.*"]), {"model.language_model.layers.0"}),
        (
            Freezing(projector=True, patterns=["*.norm.weight", "model.visual.patch_embed.*"]),
            {"model.visual.merger", "model.language_model.norm", "model.visual.patch_embed"},
        ),
    ],
)
def test_what_is_named_is_frozen_and_nothing_else(freezing: Freezing, starts: set[str]) -> None:
    model = vision_model()
    freeze(model, freezing)
    names = {name for name, _ in model.named_parameters()}
    wanted = {name for name in names if any(name.startswith(f"{start}.") for start in starts)}
    assert _frozen(model) == wanted
    assert len(trainable_parameters(model)) == len(names) - len(wanted)


def test_a_frozen_model_still_learns_through_its_frozen_parts() -> None:
    model = vision_model()
    freeze(model, Freezing(projector=True, embeddings=True, patterns=["*.layers.1.*"]))
    rows = build_rows(MIXED_GROUPS, "padded", position_rule(model.config), PAD)
    TokenPolicy(model)(rows, Sampling())[0].sum().backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is not None) == (name not in _frozen(model)), name
    assert model.model.visual.patch_embed.proj.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("freezing", "message"),
    [
        (
            Freezing(patterns=["model.layer.0.*"]),
            r"freeze_patterns model\.layer\.0\.\*: .* nearest is model\.layers\.0\.\*",
        ),
        (Freezing(patterns=["lm_heed.weight"]), r"nearest is lm_head\.weight"),
        (Freezing(vision_tower=True), r"freeze_vision_tower: models of the family 'qwen2' have"),
        (Freezing(projector=True), r"model\.freeze_projector: models of the family 'qwen2'"),
        (Freezing(patterns=["*"]), "everything is frozen"),
    ],
)
def test_what_cannot_be_frozen_is_named(freezing: Freezing, message: str) -> None:
    with pytest.raises(UserError, match=message):
        freeze(text_model(), freezing)


def test_the_configuration_says_what_is_frozen() -> None:
    config = ModelConfig(freeze_vision_tower=True, freeze_patterns=("a.*",))
    assert Freezing.of_policy(config) == Freezing(vision_tower=True, patterns=("a.*",))
    assert Freezing.of_critic(config) == Freezing(vision_tower=True)


def test_only_what_trains_is_published() -> None:
    model = vision_model()
    assert unpublished_names(model) == frozenset()
    freeze(model, Freezing(vision_tower=True, embeddings=True))
    left_out = unpublished_names(model)
    assert left_out == _frozen(model)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    published = [name for name, _ in published_weights(model, 10**6)]
    assert sorted(published) == checkpoint_names(model, trained)


def test_layers_that_generators_join_are_published_whole() -> None:
    """vLLM loads query, key and value as one, and a weight with its bias."""
    model = text_model()
    patterns = ["*.0.self_attn.k_proj.*", "*.0.mlp.up_proj.*", "*.1.self_attn.v_proj.bias"]
    freeze(model, Freezing(patterns=[*patterns, "*.0.self_attn.o_proj.*", "*.1.mlp.*"]))
    assert unpublished_names(model) == {
        "model.layers.0.self_attn.o_proj.weight",
        *(f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    }


def test_all_experts_of_a_layer_are_published_if_one_trains() -> None:
    model = nn.ModuleDict(
        {
            "experts": nn.ModuleList([nn.Linear(2, 2) for _ in range(2)]),
            "gate": nn.Linear(2, 2),
        }
    )
    layer = nn.ModuleDict({"mlp": model})
    layer.requires_grad_(False)
    model["experts"][1].bias.requires_grad_(True)
    assert unpublished_names(layer) == {"mlp.gate.weight", "mlp.gate.bias"}


def test_names_are_known_without_weights(tmp_path) -> None:

    model = vision_model()
    model.save_pretrained(tmp_path)
    skeleton = policy_without_weights(ModelSource(str(tmp_path)))
    shapes = {name: weight.shape for name, weight in model.named_parameters()}
    assert {name: weight.shape for name, weight in skeleton.named_parameters()} == shapes
    assert all(weight.device == torch.device("meta") for weight in skeleton.parameters())
