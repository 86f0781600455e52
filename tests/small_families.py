"""Text models of many families with random weights, in memory, with windows shorter than a row."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "initializer_range": 0.3,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
_OWN: dict[str, dict[str, object]] = {
    "gemma3_text": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "llama": {},
    "mistral": {"sliding_window": 4},
    "phi3": {},
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}
SMALL_TEXT_FAMILIES = tuple(_OWN)


def family_model(family: str) -> PreTrainedModel:
    """A model of two layers, the same at every call."""
    config = AutoConfig.for_model(family, **_SIZES, **_OWN[family])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
