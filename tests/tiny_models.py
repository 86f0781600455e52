"""Random models of a few thousand parameters, and prompt groups for them."""

import torch
from torch import Tensor
from transformers import (
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from lightrft_ray.models.rows import PromptGroup

IMAGE, VIDEO, PAD, VOCABULARY = 60, 61, 0, 64
_HIDDEN = 32
_MERGE = 2
_PIXEL_ROW = 3 * 2 * 4 * 4  # channels, frames and sides of a patch

_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    # Large weights: a wrong position or a wrong neighbour then shows in the first digits.
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": PAD,
}


def text_model(attention: str = "sdpa") -> Qwen2ForCausalLM:
    """A Qwen2 with 1-D positions."""
    return _seeded(Qwen2ForCausalLM, Qwen2Config(**_TEXT, attn_implementation=attention))


def expert_model(attention: str = "sdpa") -> Qwen3MoeForCausalLM:
    """A Qwen3 mixture of experts: two of four a token, in both layers."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    config = Qwen3MoeConfig(**_TEXT, **experts, head_dim=16, attn_implementation=attention)
    return _seeded(Qwen3MoeForCausalLM, config)


def vision_model(attention: str = "sdpa") -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL with M-RoPE, tied embeddings and a vision tower with windows."""
    config = Qwen2_5_VLConfig(
        text_config={
            **_TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [2, 3, 3],
                "rope_theta": 100.0,
            },
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": _HIDDEN,
            "patch_size": 4,
            "spatial_merge_size": _MERGE,
            "temporal_patch_size": 2,
            "window_size": 16,
            "fullatt_block_indexes": [1],
            "initializer_range": 0.3,
        },
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=62,
        vision_end_token_id=63,
        tie_word_embeddings=True,
        attn_implementation=attention,
    )
    return _seeded(Qwen2_5_VLForConditionalGeneration, config)


def _seeded(kind: type[PreTrainedModel], config: object) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(config).eval()


def prompt_group(
    seed: int, prompt: int, responses: list[int], grids: list[tuple[int, int]] | None = None
) -> PromptGroup:
    """Random tokens; `prompt` and `responses` are lengths, `grids` the images' (h, w) in patches.

    The prompt's text comes half before, half behind its images.
    """
    generator = torch.Generator().manual_seed(seed)

    def tokens(length: int) -> Tensor:
        return torch.randint(2, IMAGE, (length,), generator=generator)

    parts, media = [tokens(prompt // 2)], {}
    for height, width in grids or []:
        count = height * width // _MERGE**2
        parts += [torch.full((count,), IMAGE), tokens(1)]
    if grids:
        thw = torch.tensor([(1, height, width) for height, width in grids])
        rows = int(thw.prod(dim=1).sum())
        media = {
            "image_grid_thw": thw,
            "pixel_values": torch.randn(rows, _PIXEL_ROW, generator=generator),
        }
    prompt_ids = torch.cat([*parts, tokens(prompt - prompt // 2)])
    return PromptGroup(prompt_ids, [tokens(length) for length in responses], media)
