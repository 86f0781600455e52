"""A learner's published weights as vLLM's own transports take them."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

from lightrft_ray.sync.weight_source import published_shapes, published_weights


class PolicySource(WeightSource):
    """What may have changed, merged and converted on this side, in the same order every time."""

    def __init__(self, model: nn.Module, gather_bytes: int, dtype: torch.dtype) -> None:
        self._model = model
        self._gather_bytes = gather_bytes
        self._dtype = dtype

    def metadata(self) -> list[ParamMeta]:
        """Name, type and shape of all that is sent; gathers nothing."""
        shapes = published_shapes(self._model, self._gather_bytes, self._dtype)
        return [ParamMeta(name, empty.dtype, tuple(empty.shape)) for name, empty in shapes]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return published_weights(self._model, self._gather_bytes, self._dtype)
