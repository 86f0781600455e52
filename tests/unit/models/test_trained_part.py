"""Adapters of a run's policy: what trains, what is published, and what is saved."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from tiny_models import text_model, vision_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from lightrft_ray.config import ModelConfig, UserError
from lightrft_ray.models.checkpoint_names import checkpoint_names
from lightrft_ray.models.plain_weights import lora_factors
from lightrft_ray.models.trained_part import leave_to_train
from lightrft_ray.sync.weight_source import (
    adapter_weights,
    full_state_dict,
    named_weights,
    published_numel,
    published_weights,
    unpublished_names,
)

_LORA = ModelConfig(lora_rank=2, lora_alpha=6, target_modules=("q_proj", "down_proj"))


def _adapted(make: Callable[[], PreTrainedModel], config: ModelConfig = _LORA) -> PreTrainedModel:
    """With adapters that change something."""
    model = make()
    leave_to_train(model, config, seed=3)
    torch.manual_seed(1)
    for factors in lora_factors(model).values():
        torch.nn.init.normal_(factors.b)
    return model


@pytest.mark.parametrize("make", [text_model, vision_model])
def test_merged_weights_make_the_plain_model_the_adapted_one(
    make: Callable[[], PreTrainedModel],
) -> None:
    adapted, plain = _adapted(make).eval(), make().eval()
    before = {name: weight.clone() for name, weight in adapted.named_parameters()}
    weights = full_state_dict(named_weights(adapted, 10**4), keep=True)
    assert weights.keys() == dict(plain.named_parameters()).keys()
    plain.load_state_dict(weights, strict=False)
    tokens = torch.randint(2, 60, (2, 6))
    expected = adapted(tokens, use_cache=False).logits
    torch.testing.assert_close(plain(tokens, use_cache=False).logits, expected, rtol=0, atol=2e-5)
    for name, weight in adapted.named_parameters():
        assert torch.equal(weight, before[name]), "merging on the fly leaves the learner alone"


def test_what_adapters_change_is_published_with_what_vllm_joins_it_to() -> None:
    model = _adapted(text_model)
    published = dict(published_weights(model, 10**4))
    parts = {name.split("layers.0.")[-1] for name in published if ".layers.0." in name}
    joined = {f"self_attn.{part}_proj.{kind}" for part in "qkv" for kind in ("weight", "bias")}
    assert parts == joined | {"mlp.down_proj.weight"}
    assert published_numel(model, adapters_alone=False) == sum(
        weight.numel() for weight in published.values()
    )
    left_out = set(checkpoint_names(model, unpublished_names(model)))
    assert left_out.isdisjoint(published)
    assert left_out | published.keys() == dict(text_model().named_parameters()).keys()


@pytest.mark.parametrize("source", [published_weights, adapter_weights])
def test_the_sender_converts(source: Callable) -> None:
    model = _adapted(text_model)
    as_they_are = dict(source(model, 10**4))
    converted = dict(source(model, 10**4, torch.bfloat16))
    assert converted.keys() == as_they_are.keys()
    for name, weight in converted.items():
        assert weight.dtype is torch.bfloat16
        assert torch.equal(weight, as_they_are[name].to(torch.bfloat16))


def test_peft_loads_the_published_adapter(tmp_path: Path) -> None:
    """The factors alone, by the names of a checkpoint: what vLLM loads, too."""
    model = _adapted(text_model).eval()
    factors = dict(adapter_weights(model, 10**4))
    assert published_numel(model, adapters_alone=True) == sum(f.numel() for f in factors.values())
    save_file(factors, tmp_path / "adapter_model.safetensors")
    settings = '{"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", '
    settings += '"target_modules": ["q_proj", "down_proj"]}'
    (tmp_path / "adapter_config.json").write_text(settings)
    loaded = PeftModel.from_pretrained(text_model(), tmp_path).eval()
    tokens = torch.randint(2, 60, (2, 6))
    torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits, rtol=0, atol=1e-6)


def test_a_saved_policy_is_plain_and_holds_what_was_learnt(tmp_path: Path) -> None:
    model = _adapted(text_model).eval()
    model.save_pretrained(
        tmp_path, state_dict=full_state_dict(named_weights(model, 10**4), keep=True)
    )
    saved = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.randint(2, 60, (2, 6))
    torch.testing.assert_close(saved(tokens).logits, model(tokens).logits, rtol=0, atol=2e-5)


def test_a_seed_gives_the_same_adapters() -> None:
    first, second = text_model(), text_model()
    leave_to_train(first, _LORA, seed=3)
    torch.rand(3)
    leave_to_train(second, _LORA, seed=3)
    for (name, one), (_, other) in zip(
        first.named_parameters(), second.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_layers_that_the_policy_has_not_are_named() -> None:
    wrong = ModelConfig(lora_rank=2, target_modules=("q_projj",))
    with pytest.raises(UserError, match=r"target_modules q_projj: .* nearest is q_proj"):
        leave_to_train(text_model(), wrong, seed=0)
