"""Checkpoints: which loader they need, how they are loaded, and what is wrong with them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import text_model, vision_model
from transformers import Qwen2ForCausalLM, Qwen2Model
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLModel,
)

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.loading import (
    ModelSource,
    hidden_size,
    load_backbone,
    load_config,
    load_policy,
    sees_images,
    trainable_parameters,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    for name, model in (("text", text_model()), ("vision", vision_model())):
        model.save_pretrained(root / name)
    return {"text": root / "text", "vision": root / "vision"}


def test_vision_models_keep_their_tower(folders: dict[str, Path]) -> None:
    source = ModelSource(str(folders["vision"]))
    policy, backbone = load_policy(source), load_backbone(source)
    assert isinstance(policy, Qwen2_5_VLForConditionalGeneration)
    assert isinstance(backbone, Qwen2_5_VLModel)
    original = vision_model()
    for name, weight in original.model.state_dict().items():
        assert torch.equal(policy.model.state_dict()[name], weight), name
        assert torch.equal(backbone.state_dict()[name], weight), name
    assert policy.get_output_embeddings().weight is policy.get_input_embeddings().weight


def test_text_models_have_no_tower(folders: dict[str, Path]) -> None:
    source = ModelSource(str(folders["text"]))
    assert isinstance(load_policy(source), Qwen2ForCausalLM)
    assert isinstance(load_backbone(source), Qwen2Model)


def test_the_configuration_tells_the_kind_and_width(folders: dict[str, Path]) -> None:
    configs = {name: load_config(ModelSource(str(path))) for name, path in folders.items()}
    assert {name: sees_images(config) for name, config in configs.items()} == {
        "text": False,
        "vision": True,
    }
    assert {hidden_size(config) for config in configs.values()} == {32}


def test_type_and_attention_are_those_asked_for(folders: dict[str, Path]) -> None:
    source = ModelSource(str(folders["text"]), torch.bfloat16, attn_implementation="eager")
    model = load_policy(source)
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == "eager"


def test_frozen_parameters_are_not_trained() -> None:
    model = text_model()
    model.get_input_embeddings().weight.requires_grad_(False)
    trained = {id(parameter) for parameter in trainable_parameters(model)}
    assert trained == {id(parameter) for parameter in model.parameters()} - {
        id(model.get_input_embeddings().weight)
    }


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.pretrain .*nowhere: no checkpoint there"):
        load_config(ModelSource(str(tmp_path / "nowhere")))
    with pytest.raises(UserError, match=r"model\.pretrain \./nowhere: no checkpoint there"):
        load_policy(ModelSource("./nowhere"))


@pytest.mark.parametrize("content", ["{", json.dumps({"model_type": "no-such-family"})])
def test_an_unreadable_checkpoint_is_named_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"model\.pretrain .*: cannot be read: ") as caught:
        load_backbone(ModelSource(str(tmp_path)))
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    """transformers would make them up at random."""
    text_model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    name = "model.layers.1.self_attn.q_proj.weight"
    del weights[name]
    save_file(weights, file, metadata={"format": "pt"})
    for load in (load_policy, load_backbone):
        with pytest.raises(UserError, match=r"lacks 1 weights, as .*layers\.1\.self_attn\.q_proj"):
            load(ModelSource(str(tmp_path)))
