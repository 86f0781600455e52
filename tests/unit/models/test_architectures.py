"""Published models that come with the project have their published sizes."""

import pytest
from transformers import AutoConfig

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.tiny_vlm import tiny_qwen_vl_config
from lightrft_ray.models.architectures import (
    known_architectures,
    parameter_count,
    planned_config,
    weightless_backbone,
    weightless_policy,
)
from lightrft_ray.models.loading import ModelSource
from lightrft_ray.models.model_shape import BlockShape, shape_of

# As the hub shows them for the checkpoints' files.
PUBLISHED = {
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
    "llava-hf/llava-onevision-qwen2-7b-ov-hf": 8_030_348_832,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_models_have_their_published_sizes(name: str) -> None:
    config = planned_config(ModelSource(name), "model.pretrain")
    assert parameter_count(weightless_policy(config)) == PUBLISHED[name]


def test_all_known_models_are_held_against_published_sizes() -> None:
    assert known_architectures().keys() == PUBLISHED.keys()


def test_a_name_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightrft_ray.models.loading._hub_answers", lambda: False)
    with pytest.raises(UserError, match=r"model\.pretrain some/model: no such folder"):
        planned_config(ModelSource("some/model"), "model.pretrain")


def test_the_shape_of_the_embedded_model() -> None:
    shape = shape_of(weightless_policy(tiny_qwen_vl_config()))
    assert shape.parameters == shape.trained == 890_304
    assert shape.language == BlockShape(4, 128, 256, 4, 2, 32)
    assert shape.vision == BlockShape(2, 64, 128, 2, 2, 32)
    assert shape.patches_per_token == 4
    assert shape.trains_vision


def test_experts_count_as_far_as_a_token_passes_them() -> None:
    config = AutoConfig.for_model(
        "qwen3_moe",
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=32,
        num_experts=8,
        num_experts_per_tok=2,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=100,
    )
    assert shape_of(weightless_policy(config)).language.feed_forward == 64


def test_a_critic_is_a_policy_without_its_head() -> None:
    config = planned_config(ModelSource("Qwen/Qwen2.5-7B-Instruct"), "model.critic_pretrain")
    without = parameter_count(weightless_backbone(config))
    assert parameter_count(weightless_policy(config)) - without == 152_064 * 3584
