"""Memory formulas against published figures and against what PyTorch really saves."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lightrft_ray.driver.plan_memory import (
    GB,
    Memory,
    RowSize,
    Training,
    activations,
    kv_bytes_per_token,
    model_states,
    optimizer_step,
    zero_buffers,
)
from lightrft_ray.models.architectures import known_architectures, weightless_policy
from lightrft_ray.models.model_shape import BlockShape, ModelShape, shape_of

BLOCKS = BlockShape(layers=2, hidden=4, feed_forward=8, heads=2, kv_heads=1, head_dim=2)


def _shape(parameters: float, trained: float | None = None) -> ModelShape:
    return ModelShape(
        parameters=int(parameters),
        trained=int(parameters if trained is None else trained),
        largest_tensor=1,
        vocabulary=1,
        language=BLOCKS,
        vision=None,
        patches_per_token=1,
        trains_vision=False,
    )


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_are_those_of_the_paper(stage: int, gigabytes: float) -> None:
    """Figure 1 of 1910.02054: 7.5B parameters on 64 GPUs, K = 12."""
    states = model_states(_shape(7.5e9), Training(2, stage, 64))
    assert sum(states.values()) / GB == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("ranks", [1, 4, 16])
def test_zero_2_is_what_deepspeed_documents(ranks: int) -> None:
    """Its estimate without offloading is 2 bytes a parameter and 18 more over all GPUs."""
    shape, how = _shape(3e9), Training(2, 2, ranks)
    total = sum(model_states(shape, how).values()) + optimizer_step(shape, how)
    assert total == pytest.approx(3e9 * (2 + 18 / ranks))


def test_what_is_frozen_has_weights_alone() -> None:
    states = model_states(_shape(10, trained=4), Training(2, 1, 2))
    assert states == {"weights": 20, "gradients": 8, "optimizer": 24}


def test_float32_without_zero_is_trained_in_place() -> None:
    states = model_states(_shape(10), Training(4, 0, 1))
    assert states == {"weights": 40, "gradients": 40, "optimizer": 80}


def test_buffers_are_no_larger_than_what_is_exchanged() -> None:
    assert zero_buffers(_shape(10), Training(2, 0, 4)) == {}
    assert zero_buffers(_shape(10), Training(2, 2, 4)) == {"gradient bucket": 20}
    large = zero_buffers(_shape(8e9), Training(2, 3, 4))
    assert large == {"gradient bucket": 1e9, "gathered weights": 2e9}


def test_of_what_is_needed_in_turn_the_largest_counts() -> None:
    assert Memory({"a": 1, "b": 2}, {"c": 5, "d": 4}).total == 8
    assert Memory({"a": 1}).total == 1


def test_a_key_value_head_lies_on_one_gpu_at_least() -> None:
    """Qwen2.5-7B: 28 layers, 4 key-value heads of 128; 56 kB a token in bfloat16."""
    shape = shape_of(_known("Qwen/Qwen2.5-7B-Instruct"))
    assert kv_bytes_per_token(shape.language, 2, 1) == 57_344
    assert kv_bytes_per_token(shape.language, 2, 4) == 57_344 / 4
    assert kv_bytes_per_token(shape.language, 2, 8) == 57_344 / 4


def _known(name: str) -> torch.nn.Module:
    return weightless_policy(AutoConfig.for_model(**known_architectures()[name]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("has_mask", [True, False], ids=["mask", "causal"])
def test_activations_are_those_that_autograd_saves(dtype: torch.dtype, has_mask: bool) -> None:
    """Of a model with grouped heads, to 5%; what lies behind the last hidden state left out."""
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=320,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=1,
        bos_token_id=1,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    tokens = 192
    rows = RowSize(tokens, 0, tokens**2 if has_mask else 0, repeats_keys=has_mask)
    shape = shape_of(model)
    how = Training(dtype.itemsize, 1, 1)
    behind = 2 * 4 * tokens * shape.vocabulary + 4 * shape.vocabulary * shape.language.hidden
    estimate = activations(shape, rows, how) - behind
    assert estimate == pytest.approx(_saved_bytes(model, tokens, has_mask), rel=0.05)


def _saved_bytes(model: torch.nn.Module, tokens: int, has_mask: bool) -> int:
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, tuple[int, torch.Tensor]] = {}  # tensors are kept, so that no address recurs

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    mask = torch.full((tokens, tokens), -1e9, dtype=model.dtype).triu(1)[None, None]
    ids = torch.zeros((1, tokens), dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(input_ids=ids, attention_mask=mask if has_mask else None, use_cache=False)
    return sum(size for size, _ in saved.values())


def test_checkpointed_blocks_keep_their_inputs_and_one_block() -> None:
    rows = RowSize(tokens=10, patches=0, mask_elements=0, repeats_keys=True)
    shape = _shape(1)
    whole = activations(shape, rows, Training(2, 1, 1))
    sparse = activations(shape, rows, Training(2, 1, 1, checkpoints_blocks=True))
    one = 10 * BLOCKS.saved_bytes(2, repeats_keys=True)
    assert whole - sparse == 2 * one - (2 * 10 * 4 * 2 + one)
