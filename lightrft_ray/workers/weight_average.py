"""An exponential moving average of the weights that train, spread over the ranks."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from lightrft_ray.sync.weight_source import gathered


class WeightAverage:
    """a ← β a + (1 − β) w after each applied update, from the weights at the start on.

    w are the weights as the model computes with them. Their average is held in float32 in CPU
    memory, on each rank for an equal part of every parameter: under ZeRO-3 the part that the rank
    owns anyway. What does not train is not kept.
    """

    def __init__(self, model: nn.Module, beta: float) -> None:
        self._beta = beta
        self._parameters = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        self._average = {name: part.float().cpu().clone() for name, part in self._parts()}
        self._trained: dict[str, Tensor] = {}  # the model's own parts while it holds the average

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights that an update has led to."""
        self._check_not_swapped()
        for name, part in self._parts():
            self._average[name].lerp_(part.float().cpu(), 1 - self._beta)

    @torch.no_grad()
    def swap(self) -> None:
        """Give the model its average in place of what was trained, or what was trained back.

        A collective: all ranks must call it. The way back is exact to the bit. Between the two the
        model must not be trained.
        """
        incoming = self._trained or self._average
        trained = {} if self._trained else {name: part.clone() for name, part in self._parts()}
        for name, parameter in self._parameters.items():
            with gathered([parameter], modifier_rank=0):
                _set_from_parts(parameter.data, incoming[name])
        self._trained = trained

    def swap_back(self) -> None:
        """Give the model what was trained, where it holds its average; all ranks must call it."""
        if self._trained:
            self.swap()

    def state_dict(self) -> dict[str, Tensor]:
        """This rank's part of the average by parameter; the tensors are not copied."""
        return dict(self._average)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from the `state_dict` of the same rank among as many; ValueError for another."""
        self._check_not_swapped()
        shapes = {name: part.shape for name, part in self._average.items()}
        if {name: part.shape for name, part in state.items()} != shapes:
            raise ValueError("the averaged weights are those of another model or number of ranks")
        for name, part in state.items():
            self._average[name].copy_(part)

    def _check_not_swapped(self) -> None:
        if self._trained:
            raise RuntimeError("the model holds the average of its weights: swap it back first")

    def _parts(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._parameters.items():
            yield name, _own_part(parameter)


def _own_part(parameter: nn.Parameter) -> Tensor:
    """This rank's part (⌈numel / ranks⌉,) of the flat parameter, with anything behind its end."""
    owned = getattr(parameter, "ds_tensor", None)  # ZeRO-3 divides by the same rule
    if owned is not None:
        return owned.data.view(-1)
    flat, size = parameter.data.view(-1), _part_size(parameter.data)
    start = torch.distributed.get_rank() * size
    part = flat[start : start + size]
    return nn.functional.pad(part, (0, size - len(part)))


def _set_from_parts(whole: Tensor, part: Tensor) -> None:
    """Fill a whole parameter from the parts of all ranks, in its own type."""
    own = part.to(whole.device, whole.dtype)
    parts = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, own)
    whole.view(-1).copy_(torch.cat(parts)[: whole.numel()])


def _part_size(whole: Tensor) -> int:
    return -(-whole.numel() // torch.distributed.get_world_size())
