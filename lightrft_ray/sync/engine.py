"""vLLM's end of the ``object_store`` transport: loads buckets from shared memory.

It runs in the engine's worker processes. On CPU, weights are written in place where vLLM changes
none of them after loading but those of linear layers. Others it would repack: they are loaded
between `initialize_layerwise_reload` and `finalize_layerwise_reload`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from lightrft_ray.sync.plain_layers import can_be_plain, make_plain
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
        is_alone = self.parallel_config.world_size == 1
        self._in_place = self.device.type == "cpu" and is_alone and can_be_plain(self.model)
        self._view = SharedView()
        self._checked: Counter[str] = Counter()

    def start_weight_update(self) -> None:
        """Begin an update: layers wait for their weights."""
        self._loaded: set[str] = set()
        self._sent: Counter[str] = Counter()
        if self._in_place:
            make_plain(self.model, self._expected)
        else:
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
            weights = list(unpack_bucket(spec, data[at : at + spec.nbytes]))
            self._sent.update({name: tensor.numel() for name, tensor in weights})
            self._loaded |= cast(_LoadsWeights, self.model).load_weights(weights)

    def finish_weight_update(self) -> None:
        """End the update; RuntimeError where a parameter was not, or not wholly, written."""
        missing = sorted(self._expected - self._loaded)
        if self._in_place:
            missing += self._incomplete_parameters()
        else:
            missing += _incomplete_layers(self.model)
            finalize_layerwise_reload(self.model, self.model_config)
        if missing:
            named = ", ".join(missing[:_NAMED_AT_MOST])
            raise RuntimeError(f"the weight update left {len(missing)} parameters out: {named}")
        if not self._in_place:
            _repack_tied_heads(self.model)
            if self.device.type == "cpu":
                _repack_experts(self.model, self._loaded)

    def _incomplete_parameters(self) -> list[str]:
        """Looks through the model only where something else was sent than the last time."""
        if self._sent != self._checked:
            missing = _incomplete_parameters(self.model, self._sent)
            self._checked = Counter() if missing else self._sent
            return missing
        return []

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


def _incomplete_parameters(model: nn.Module, sent: Mapping[str, int]) -> list[str]:
    """Parameters of which a part was sent, given the sizes of what was, by Hugging Face names.

    Embeddings are left out: their padding to a multiple of 64 rows is never loaded.
    """
    embeddings = {
        f"{name}.weight"
        for name, layer in model.named_modules()
        if isinstance(layer, VocabParallelEmbedding)
    }
    sizes = {
        name: parameter.numel()
        for name, parameter in model.named_parameters()
        if name not in embeddings
    }
    written: Counter[str] = Counter()
    for name, size in sent.items():
        mapped = _mapped(model, [name])
        owners = [own for each in mapped for own in (each, _joined(each)) if own in sizes]
        written.update(dict.fromkeys(owners[:1], size))
    return sorted(name for name, size in sizes.items() if 0 < written[name] < size)


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
