"""Tiny random checkpoints of the text families."""

from collections.abc import Callable
from pathlib import Path

import torch
from families.tokens import VOCABULARY, byte_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    # Large weights: a wrong position or a wrong neighbour then shows in the first digits.
    "initializer_range": 0.15,
    "max_position_embeddings": 512,
    "bos_token_id": None,
}
_OWN = {
    "qwen2": {},
    "qwen3": {},
    "llama": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": 16},
    "gemma3_text": {
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 32,
    },
    "phi3": {"original_max_position_embeddings": 512},
    "qwen3_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    },
}
TEXT_FAMILIES = tuple(_OWN)


def text_family(family: str, **changes: object) -> PreTrainedModel:
    """A family's model in memory, the same at every call, with `changes` to its configuration."""
    config = AutoConfig.for_model(family, **{**SIZES, "pad_token_id": 0, **_OWN[family], **changes})
    return seeded(lambda: AutoModelForCausalLM.from_config(config))


def build_text(family: str, folder: Path) -> PreTrainedModel:
    """Write a checkpoint with its tokenizer into `folder`; returns the model, in float32."""
    tokenizer = byte_tokenizer()
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = text_family(family, **special)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def seeded(make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """A model whose norms and biases differ, too, from those of any other model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make().eval()
        for name, weight in model.named_parameters():
            if weight.dim() == 1 or "mm_input_projection" in name:
                torch.nn.init.normal_(weight, mean=weight.data.mean().item(), std=0.1)
    return model
