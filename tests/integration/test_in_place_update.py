"""vLLM's own model of the embedded checkpoint, without an engine: updates in place on CPU."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from vllm.config import WeightTransferConfig, set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import ModelSource, load_policy
from lightrft_ray.sync.buckets import pack_buckets, write_bucket
from lightrft_ray.sync.engine import ObjectStoreWeightTransferEngine
from lightrft_ray.sync.plugin import OBJECT_STORE, register
from lightrft_ray.sync.shared_buffer import SharedBuffer
from lightrft_ray.sync.weight_source import named_weights

Weights = list[tuple[str, Tensor]]


@dataclass(frozen=True)
class Receiver:
    """vLLM's model, what updates it, and where updates lie."""

    model: nn.Module
    engine: ObjectStoreWeightTransferEngine
    buffer: SharedBuffer

    def update(self, weights: Weights) -> None:
        buckets = list(pack_buckets(weights, 200_000))
        block = self.buffer.reserve(sum(spec.nbytes for spec, _ in buckets))
        located, end = [], 0
        for spec, parts in buckets:
            write_bucket(spec, parts, block[end : end + spec.nbytes])
            located.append((end, spec.to_dict()))
            end += spec.nbytes
        self.engine.start_weight_update()
        self.engine.update_weights({"path": self.buffer.path, "buckets": located})
        self.engine.finish_weight_update()


@pytest.fixture(scope="module")
def receiver(config: RunConfig) -> Iterator[Receiver]:
    register()
    arguments = EngineArgs(
        model=config.model.pretrain,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        weight_transfer_config=WeightTransferConfig(backend=OBJECT_STORE),
    )
    with socket.socket() as probe, ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        # As vLLM's worker on CPU does: PyTorch has no accelerator there to ask.
        patch.setattr(torch.accelerator, "empty_cache", lambda: None)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        vllm_config = arguments.create_engine_config()
        stack.enter_context(set_current_vllm_config(vllm_config))
        init_distributed_environment(1, 0, f"tcp://127.0.0.1:{port}", 0, "gloo")
        initialize_model_parallel(1)
        stack.callback(cleanup_dist_env_and_memory)
        model = get_model(vllm_config=vllm_config)
        transfer = vllm_config.weight_transfer_config
        engine = ObjectStoreWeightTransferEngine(transfer, vllm_config, torch.device("cpu"), model)
        engine.init_transfer_engine(engine.parse_init_info({"left_out": []}))
        yield Receiver(model, engine, stack.enter_context(SharedBuffer("test_in_place")))


def _weights(config: RunConfig, scale: float) -> Weights:
    model = load_policy(ModelSource(config.model.pretrain))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return list(named_weights(model, 10**6))


def test_layers_compute_with_what_was_sent_last(receiver: Receiver, config: RunConfig) -> None:
    """Joined projections, those of the vision tower, and the head that is tied to the embedding."""
    for scale in (1.5, 0.5):
        weights = _weights(config, scale)
        receiver.update(weights)
        by_end = {name.split("layers.1.")[-1]: weight for name, weight in weights if "s.1." in name}
        named = dict(receiver.model.named_modules())
        layer = next(name for name in named if name.endswith("layers.1.self_attn.qkv_proj"))
        x = torch.randn(5, 128)
        parts = [by_end[f"self_attn.{part}_proj.weight"] for part in "qkv"]
        biases = [by_end[f"self_attn.{part}_proj.bias"] for part in "qkv"]
        expected = nn.functional.linear(x, torch.cat(parts), torch.cat(biases))
        torch.testing.assert_close(named[layer](x)[0], expected, rtol=1e-4, atol=1e-5)
        embedding = next(weight for name, weight in weights if name.endswith("embed_tokens.weight"))
        head = next(each for name, each in named.items() if name.endswith("lm_head"))
        logits = head.quant_method.apply(head, x)[:, : len(embedding)]
        expected = nn.functional.linear(x, embedding)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_every_update_writes_into_the_same_memory(receiver: Receiver, config: RunConfig) -> None:
    receiver.update(_weights(config, 1.0))
    before = {name: weight.data_ptr() for name, weight in receiver.model.named_parameters()}
    receiver.update(_weights(config, 2.0))
    after = {name: weight.data_ptr() for name, weight in receiver.model.named_parameters()}
    assert before == after
    assert all(weight.numel() > 0 for weight in receiver.model.parameters())


def test_what_is_left_out_is_named(receiver: Receiver, config: RunConfig) -> None:
    """A whole parameter, and a part of one that vLLM joins from three."""
    weights = _weights(config, 1.0)
    receiver.update(weights)
    for left_out, named in (("layers.0.mlp.down_proj", "down_proj"), ("0.self_attn.k_proj", "qkv")):
        kept = [(name, weight) for name, weight in weights if left_out not in name]
        assert len(kept) < len(weights)
        with pytest.raises(RuntimeError, match=named):
            receiver.update(kept)
    receiver.update(weights)
