"""Linear layers of vLLM's CPU backend whose weights can be written in place.

vLLM packs each weight for oneDNN when it has loaded it, into memory that nobody can write to again:
of every update, each layer would be allocated, loaded, packed and copied anew, while no token is
sampled. Here a layer keeps its weight as the checkpoint has it, and oneDNN reads that. Loading is
then one copy. The products take as long as before for 64 tokens and more; for fewer, oneDNN puts
the weight in order each time, which up to doubles the time of layers too large for the caches.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.attention import MLAAttention, is_deferred_attention_layer
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.meta import materialize_layer, restore_layer_on_meta


def can_be_plain(model: nn.Module) -> bool:
    """Whether vLLM changes no weights of the model after loading but those of linear layers."""
    layers = list(model.modules())
    if any(isinstance(layer, MLAAttention) for layer in layers):
        return False  # it derives more weights of those of its projections
    methods = [
        getattr(layer, "quant_method", None)
        for layer in layers
        if not is_deferred_attention_layer(layer)
    ]
    known = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
    return all(method is None or type(method) in known for method in methods)


def make_plain(model: nn.Module, written: Collection[str]) -> None:
    """Have layers whose parameters are `written` by each update keep plain weights.

    Those of which vLLM has kept packed weights alone have no values then: an update must follow.
    """
    own = {id(parameter) for name, parameter in model.named_parameters() if name in written}
    for layer in model.modules():
        if not hasattr(layer, "cpu_linear"):
            continue
        # Also a head that shares its weight with the embedding, and keeps a packed copy of it.
        if any(id(parameter) in own for parameter in layer.parameters(recurse=False)):
            if layer.get_parameter("weight").numel() == 0:
                info = get_layerwise_info(layer)
                restore_layer_on_meta(layer, info)
                materialize_layer(layer, info)
            layer.cpu_linear = _plain_linear  # type: ignore[assignment]  # a plain attribute


def _plain_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As `torch.nn.functional.linear`, which for float32 takes a library twice as slow."""
    if bias is not None:
        bias = bias.to(x.dtype)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
