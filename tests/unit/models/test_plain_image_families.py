"""Vision-language families whose images are plain (images, C, H, W), padded and one by one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
)

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.critic_vl import CriticVL

_IMAGE, _TOKENS = 60, 4  # id and number of an image's tokens
_TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
    "initializer_range": 0.3,
}


def _llava() -> PreTrainedModel:
    config = LlavaConfig(
        text_config=LlamaConfig(**_TEXT),
        vision_config=CLIPVisionConfig(**_VISION),
        image_token_id=_IMAGE,
    )
    return LlavaForConditionalGeneration(config)


def _gemma() -> PreTrainedModel:
    config = Gemma3Config(
        text_config={**_TEXT, "layer_types": ["sliding_attention", "full_attention"]},
        vision_config={**_VISION, "model_type": "siglip_vision_model"},
        image_token_id=_IMAGE,
        mm_tokens_per_image=_TOKENS,
    )
    model = Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)  # 0 if new
    return model


def _sample(seed: int, images: int, text: int) -> tuple[Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(2, _IMAGE - 5, (text,), generator=generator)
    tokens = torch.cat([words[:1], torch.full((images * _TOKENS,), _IMAGE), words[1:]])
    pixels = torch.randn(images, 3, 8, 8, generator=generator) if images else None
    return tokens, pixels


@pytest.mark.parametrize("build", [_llava, _gemma])
def test_a_padded_batch_of_images_and_text_equals_its_samples(
    build: Callable[[], PreTrainedModel],
) -> None:
    torch.manual_seed(0)
    model = build().eval()
    samples = [_sample(1, 1, 5), _sample(2, 0, 4), _sample(3, 2, 7)]
    width = max(len(tokens) for tokens, _ in samples)
    sequences, mask = torch.zeros(3, width).long(), torch.zeros(3, width).long()
    for row, (tokens, _) in enumerate(samples):
        sequences[row, width - len(tokens) :] = tokens
        mask[row, width - len(tokens) :] = 1
    pixels = torch.cat([pixels for _, pixels in samples if pixels is not None])
    for scorer in (ActorVL(model), CriticVL(model)):
        together = scorer(sequences, 3, mask, pixel_values=pixels)
        for row, (tokens, own) in enumerate(samples):
            alone = scorer(tokens[None], 3, pixel_values=own)
            torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-5)
        changed = scorer(sequences, 3, mask, pixel_values=pixels.flip(0))
        assert ((changed - together)[[0, 2]].abs() > 1e-5).all()


@pytest.mark.parametrize("build", [_llava, _gemma])
def test_adapters_leave_the_vision_tower_out(build: Callable[[], PreTrainedModel]) -> None:
    actor = ActorVL(build(), lora_rank=2)
    adapted = [name for name, _ in actor.named_parameters() if "lora_" in name]
    assert adapted
    assert not any("vision" in name or "projector" in name for name in adapted)


@pytest.mark.parametrize("build", [_llava, _gemma])
def test_families_that_cannot_be_packed_say_so(build: Callable[[], PreTrainedModel]) -> None:
    with pytest.raises(UserError, match="cannot be packed"):
        ActorVL(build(), packing_samples=True)
