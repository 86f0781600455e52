"""vLLM's end of the ``object_store`` transport: loads buckets from shared memory.

It runs in the engine's worker processes. Weights are loaded between `initialize_layerwise_reload`
and `finalize_layerwise_reload`, as vLLM repacks them when they are complete. To have its layers
read plain weights instead, which could be written in place, changes the last bits of products: the
demo then ends 0.05 lower, by nothing but other draws.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import nn
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.models.utils import WeightsMapper

from lightrft_ray.sync.buckets import BucketSpec, unpack_bucket
from lightrft_ray.sync.shared_buffer import SharedView
from lightrft_ray.sync.weight_source import JOINED_INTO

_NAMED_AT_MOST = 5


class _LoadsWeights(Protocol):
    """What every model of vLLM's can do; gives the names of the parameters it wrote."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]: ...


@dataclass
class ObjectStoreInitInfo(WeightTransferInitInfo):
    """`left_out` are Hugging Face names of weights that no update brings: they never change."""

    left_out: list[str] = field(default_factory=list)


@dataclass
class ObjectStoreUpdateInfo(WeightTransferUpdateInfo):
    """Where the buckets lie: the shared buffer's path, and (offset, specification) of each."""

    path: str
    buckets: list[tuple[int, dict[str, object]]] = field(default_factory=list)


class ObjectStoreWeightTransferEngine(
    WeightTransferEngine[ObjectStoreInitInfo, ObjectStoreUpdateInfo]
):
    """Loads buckets, and refuses an update that leaves a parameter with its old value."""

    init_info_cls = ObjectStoreInitInfo
    update_info_cls = ObjectStoreUpdateInfo

    def init_transfer_engine(self, init_info: ObjectStoreInitInfo) -> None:
        """Remember which parameters an update must write."""
        own = {name for name, _ in self.model.named_parameters()}
        self._expected = own - own_names(self.model, init_info.left_out)
        self._view = SharedView()

    def start_weight_update(self) -> None:
        """Begin an update: layers wait for their weights."""
        self._loaded: set[str] = set()
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, object]) -> None:
        """Load buckets; the copy is done on return."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: ObjectStoreUpdateInfo) -> None:
        """Load each bucket through the model's own loader; its checksum was looked at before."""
        buckets = [(at, BucketSpec.from_dict(fields)) for at, fields in update_info.buckets]
        end = max(at + spec.nbytes for at, spec in buckets)
        data = torch.from_numpy(self._view.read(update_info.path, end))
        for at, spec in buckets:
            weights = unpack_bucket(spec, data[at : at + spec.nbytes])
            self._loaded |= cast(_LoadsWeights, self.model).load_weights(weights)

    def finish_weight_update(self) -> None:
        """End the update; RuntimeError where a parameter was not, or not wholly, written."""
        missing = sorted(self._expected - self._loaded) + _incomplete_layers(self.model)
        finalize_layerwise_reload(self.model, self.model_config)
        if missing:
            named = ", ".join(missing[:_NAMED_AT_MOST])
            raise RuntimeError(f"the weight update left {len(missing)} parameters out: {named}")
        _repack_tied_heads(self.model)
        if self.device.type == "cpu":
            _repack_experts(self.model, self._loaded)

    def shutdown(self) -> None:
        """Nothing is held between updates."""


def own_names(model: nn.Module, names: Sequence[str]) -> set[str]:
    """What a model of vLLM's calls, or would call, the parameters with these Hugging Face names."""
    mapped = _mapped(model, names)
    experts = {_experts_of(name) for name in mapped} - {""}
    of_experts = {own for own, _ in model.named_parameters() if _experts_of(own) in experts}
    return {*mapped, *(_joined(name) for name in mapped), *of_experts}


def _mapped(model: nn.Module, names: Sequence[str]) -> list[str]:
    """Names as vLLM's model has them before it joins layers; without those that it ignores."""
    mapper: WeightsMapper | None = getattr(model, "hf_to_vllm_mapper", None)
    return list(names) if mapper is None else mapper.apply_list(list(names))


def _experts_of(name: str) -> str:
    """Where the experts lie that a parameter belongs to; "" if to none."""
    before, experts, _ = name.partition(".experts.")
    return before if experts else ""


def _joined(name: str) -> str:
    parts = name.split(".")
    return ".".join([*parts[:-2], *(JOINED_INTO.get(part, part) for part in parts[-2:])])


def _incomplete_layers(model: nn.Module) -> list[str]:
    """Layers of which a part was loaded, before the update is finalized.

    Embeddings are left out: their padding to a multiple of 64 rows is never loaded.
    """
    waiting = []
    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        partly = info.can_load() and 0 < info.load_numel < (info.load_numel_total or 0)
        if partly and not isinstance(layer, VocabParallelEmbedding):
            waiting.append(name)
    return waiting


def _repack_tied_heads(model: nn.Module) -> None:
    """Process heads that share their weight with the embedding.

    The reload writes the shared weight, but a head on CPU keeps a packed copy of the old one.
    """
    embeddings = {
        layer.get_parameter("weight").data_ptr()
        for layer in model.modules()
        if type(layer) is VocabParallelEmbedding
    }
    for head in model.modules():
        if isinstance(head, ParallelLMHead):
            shares_weight = head.get_parameter("weight").data_ptr() in embeddings
            if shares_weight:
                head.quant_method.process_weights_after_loading(head)


def _repack_experts(model: nn.Module, loaded: Collection[str]) -> None:
    """Pack the experts that were loaded, as vLLM's kernels on CPU read them.

    It packs those of a checkpoint, and leaves those of an update as they came.
    """
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        if not isinstance(method, UnquantizedFusedMoEMethod) or method.moe_kernel is None:
            continue
        experts = method.moe_kernel.fused_experts
        if isinstance(experts, CPUUnquantizedExperts) and f"{name}.w13_weight" in loaded:
            experts.process_weights_after_loading(layer)
