"""Full, named weights of a learner's model, whatever the ZeRO stage that shards them.

What is frozen is not published. vLLM joins some layers into one, which it loads as a whole or not
at all: of those, and of the weight and bias of one layer, all are published if one trains.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from lightrft_ray.models.checkpoint_names import checkpoint_weights

# Layers that vLLM joins, by the last part of their names.
_JOINED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
JOINED_INTO = {part: whole for whole, parts in _JOINED.items() for part in parts}


def published_weights(model: nn.Module, gather_bytes: int) -> Iterator[tuple[str, Tensor]]:
    """What may have changed, by its name in a checkpoint; otherwise as `named_weights`."""
    for group in _parameter_groups(model, gather_bytes, unpublished_names(model)):
        with gathered([parameter for _, parameter in group]):
            whole = {name: parameter.data for name, parameter in group}
            yield from checkpoint_weights(model, whole).items()


def named_weights(model: nn.Module, gather_bytes: int) -> Iterator[tuple[str, Tensor]]:
    """(Hugging Face name, full tensor) of each parameter, in order; tied weights once.

    Under ZeRO-3 parameters are gathered some `gather_bytes` at a time, which is a collective:
    every rank must run through the whole iteration. A tensor is valid until the next is taken.
    """
    for group in _parameter_groups(model, gather_bytes):
        with gathered([parameter for _, parameter in group]):
            for name, parameter in group:
                yield name, parameter.data


def unpublished_names(model: nn.Module) -> frozenset[str]:
    """Names of the frozen parameters that generators need not get, as they never change."""
    units: dict[str, list[tuple[str, bool]]] = {}
    for name, parameter in model.named_parameters():
        units.setdefault(_unit(name), []).append((name, parameter.requires_grad))
    still = [members for members in units.values() if not any(trains for _, trains in members)]
    return frozenset(name for members in still for name, _ in members)


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


def _parameter_groups(
    model: nn.Module, gather_bytes: int, leave_out: Collection[str] = ()
) -> Iterator[list[tuple[str, nn.Parameter]]]:
    group: list[tuple[str, nn.Parameter]] = []
    size = 0
    for name, parameter in model.named_parameters():
        if name in leave_out:
            continue
        nbytes = _full_numel(parameter) * parameter.element_size()
        if group and size + nbytes > gather_bytes:
            yield group
            group, size = [], 0
        group.append((name, parameter))
        size += nbytes
    if group:
        yield group


def _full_numel(parameter: nn.Parameter) -> int:
    """Elements of the whole parameter: ZeRO-3 leaves an empty placeholder and `ds_numel`."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))
