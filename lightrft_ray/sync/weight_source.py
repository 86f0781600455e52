"""Full, named weights of a learner's model, whatever the ZeRO stage that shards them.

What is frozen is not published. vLLM joins some layers into one, which it loads as a whole or not
at all: of those, and of the weight and bias of one layer, all are published if one trains.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from lightrft_ray.models.checkpoint_names import checkpoint_weights
from lightrft_ray.models.plain_weights import PlainWeight, lora_factors, plain_weights

# Layers that vLLM joins, by the last part of their names.
_JOINED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
JOINED_INTO = {part: whole for whole, parts in _JOINED.items() for part in parts}


def published_weights(
    model: nn.Module, gather_bytes: int, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """What may have changed, by its name in a checkpoint; otherwise as `named_weights`.

    Floating-point weights come in `dtype` (None: as they are), so that no more is sent than the
    receiver keeps.
    """
    for group in _published_groups(model, gather_bytes):
        with gathered(_parameters(group)):
            whole = {weight.name: weight.value() for weight in group}
            for name, tensor in checkpoint_weights(model, whole).items():
                yield name, tensor if dtype is None else _converted(tensor, dtype)


def published_shapes(
    model: nn.Module, gather_bytes: int, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The same with empty tensors on the meta device; gathers nothing."""
    for group in _published_groups(model, gather_bytes):
        empty = {weight.name: _empty(weight.parameter) for weight in group}
        for name, tensor in checkpoint_weights(model, empty).items():
            yield name, tensor if dtype is None else _converted(tensor, dtype)


def named_weights(model: nn.Module, gather_bytes: int) -> Iterator[tuple[str, Tensor]]:
    """(Hugging Face name, full tensor) of each parameter, in order; tied weights once.

    Adapters are merged into what they change. Under ZeRO-3 parameters are gathered some
    `gather_bytes` at a time, which is a collective: every rank must run through the whole
    iteration. A tensor is valid until the next is taken.
    """
    for group in _weight_groups(plain_weights(model), gather_bytes):
        with gathered(_parameters(group)):
            for weight in group:
                yield weight.name, weight.value()


def adapter_weights(
    model: nn.Module, gather_bytes: int, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The factors of all adapters, by their names in a checkpoint of peft; as `named_weights`."""
    factors = lora_factors(model)
    parts = [part for each in factors.values() for part in (each.a, each.b)]
    names = [
        f"base_model.model.{_checkpoint_layer(model, layer)}.{part}.weight"
        for layer in factors
        for part in ("lora_A", "lora_B")
    ]
    pairs = [PlainWeight(*pair, None) for pair in zip(names, parts, strict=True)]
    for group in _weight_groups(pairs, gather_bytes):
        with gathered(_parameters(group)):
            for weight in group:
                tensor = weight.value()
                yield weight.name, tensor if dtype is None else _converted(tensor, dtype)


def unpublished_names(model: nn.Module) -> frozenset[str]:
    """Names of the frozen parameters that generators need not get, as they never change."""
    units: dict[str, list[PlainWeight]] = {}
    for weight in plain_weights(model):
        units.setdefault(_unit(weight.name), []).append(weight)
    still = [members for members in units.values() if not any(each.trains for each in members)]
    return frozenset(each.name for members in still for each in members)


def published_numel(model: nn.Module, *, adapters_alone: bool) -> int:
    """Elements of all that `published_weights` gives, or `adapter_weights`."""
    if adapters_alone:
        parts = lora_factors(model).values()
        return sum(_full_numel(each.a) + _full_numel(each.b) for each in parts)
    return sum(_full_numel(each.parameter) for each in _published(model))


def _checkpoint_layer(model: nn.Module, layer: str) -> str:
    """What a checkpoint calls a layer."""
    empty = {f"{layer}.weight": torch.empty(1, 1, device="meta")}
    (name,) = checkpoint_weights(model, empty)
    return name.removesuffix(".weight")


def _converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _parameters(group: Iterable[PlainWeight]) -> list[nn.Parameter]:
    return [parameter for weight in group for parameter in weight.parameters]


def _unit(name: str) -> str:
    """The layer of a parameter, joined as in vLLM; all experts of a layer are one."""
    before, experts, _ = name.partition(".experts.")
    if experts:
        return f"{before}.experts"
    layer = name.rpartition(".")[0]
    around, _, leaf = layer.rpartition(".")
    return f"{around}.{JOINED_INTO.get(leaf, leaf)}"


def full_state_dict(weights: Iterable[tuple[str, Tensor]], *, keep: bool) -> dict[str, Tensor]:
    """Copies of all weights on the CPU; empty where `keep` is false, after the same iteration."""
    return {name: tensor.detach().cpu().clone() for name, tensor in weights if keep}


def gathered(
    parameters: list[nn.Parameter], modifier_rank: int | None = None
) -> AbstractContextManager[object]:
    """Whole parameters inside, whatever the ZeRO stage; a collective under ZeRO-3.

    What `modifier_rank` writes into them is kept on all ranks; None is for reading.
    """
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed  # slow to import, and only learners have it loaded

    with torch.no_grad():
        return deepspeed.zero.GatheredParameters(parameters, modifier_rank=modifier_rank)


def _published(model: nn.Module) -> list[PlainWeight]:
    left_out = unpublished_names(model)
    return [weight for weight in plain_weights(model) if weight.name not in left_out]


def _published_groups(model: nn.Module, gather_bytes: int) -> Iterator[list[PlainWeight]]:
    return _weight_groups(_published(model), gather_bytes)


def _empty(parameter: nn.Parameter) -> Tensor:
    """Like the whole parameter, of which ZeRO-3 leaves a placeholder and `ds_shape`."""
    shape = getattr(parameter, "ds_shape", parameter.shape)
    return torch.empty(shape, dtype=parameter.dtype, device="meta")


def _weight_groups(
    weights: Iterable[PlainWeight], gather_bytes: int
) -> Iterator[list[PlainWeight]]:
    group: list[PlainWeight] = []
    size = 0
    for weight in weights:
        nbytes = sum(_full_numel(each) * each.element_size() for each in weight.parameters)
        if group and size + nbytes > gather_bytes:
            yield group
            group, size = [], 0
        group.append(weight)
        size += nbytes
    if group:
        yield group


def _full_numel(parameter: nn.Parameter) -> int:
    """Elements of the whole parameter: ZeRO-3 leaves an empty placeholder and `ds_numel`."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))
