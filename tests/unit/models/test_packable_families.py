"""Every family that is said to be packable is: no sample of a packed row sees another."""

import pytest
import torch
from batches import Samples
from tiny_models import prompt_group
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.families import PACKABLE

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
_OWN = {
    "gemma3_text": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"sliding_window": 4},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}
_TEXT = [family for family in PACKABLE if "vl" not in family]  # tiny_models has a vision model


def family_model(family: str) -> PreTrainedModel:
    config = AutoConfig.for_model(family, **{**_SIZES, **_OWN.get(family, {})})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


@pytest.mark.parametrize("family", _TEXT)
def test_a_packed_batch_equals_a_padded_one(family: str) -> None:
    samples = Samples.of([prompt_group(1, 3, [9, 2]), prompt_group(2, 8, [1, 4])])
    model = family_model(family)
    arguments = (samples.padded, samples.num_actions, samples.mask)
    padded = ActorLanguage(model)(*arguments)
    packed = ActorLanguage(model, packing_samples=True)(*arguments)
    torch.testing.assert_close(packed, padded, rtol=0, atol=1e-5)
    assert padded[samples.layout.action_mask].std() > 0.1
