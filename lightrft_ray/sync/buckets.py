"""Flat buckets of named tensors: the wire format of a weight publication.

A bucket is one block of bytes and the specification of what lies in it, so that a whole model
travels in a few objects and not in one call per tensor. Each bucket carries a checksum
(xxh3_64 of the xxhash library: a hash at memory speed).
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
import xxhash
from torch import Tensor

from lightrft_ray.config.errors import InfrastructureError

_ALIGNMENT = 16  # bytes: a view as any dtype must start at a multiple of its size


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a bucket; `dtype` as in ``torch.float32``, without the ``torch.``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class BucketSpec:
    """What lies in a bucket of `nbytes` bytes."""

    tensors: tuple[TensorSpec, ...]
    nbytes: int
    checksum: int

    def to_dict(self) -> dict[str, object]:
        """Plain containers, for messages to other processes."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: dict[str, object]) -> "BucketSpec":
        """The inverse of `to_dict`."""
        tensors = tuple(
            TensorSpec(**{**tensor, "shape": tuple(tensor["shape"])})
            for tensor in fields["tensors"]  # type: ignore[attr-defined]
        )
        return BucketSpec(tensors, int(fields["nbytes"]), int(fields["checksum"]))  # type: ignore[call-overload]


def pack_buckets(
    weights: Iterable[tuple[str, Tensor]], bucket_bytes: int
) -> Iterator[tuple[BucketSpec, np.ndarray]]:
    """Buckets (specification, uint8 array) of at most `bucket_bytes`, or of one larger tensor."""
    pending: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in weights:
        if pending and size + _aligned(tensor.nbytes) > bucket_bytes:
            yield _pack(pending, size)
            pending, size = [], 0
        pending.append((name, tensor.detach().cpu()))
        size += _aligned(tensor.nbytes)
    if pending:
        yield _pack(pending, size)


def unpack_bucket(spec: BucketSpec, data: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Views (name, tensor) into `data`, a uint8 tensor of the bucket's bytes."""
    for tensor in spec.tensors:
        dtype: torch.dtype = getattr(torch, tensor.dtype)
        nbytes = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
        block = data[tensor.offset : tensor.offset + nbytes]
        yield tensor.name, block.view(dtype).view(tensor.shape)


def verify_checksum(spec: BucketSpec, data: np.ndarray) -> None:
    """Raise InfrastructureError where the bytes are not those that were sent."""
    if data.nbytes != spec.nbytes or checksum(data) != spec.checksum:
        raise InfrastructureError(
            f"a bucket of {len(spec.tensors)} weights from {spec.tensors[0].name} on arrived "
            f"damaged ({data.nbytes} of {spec.nbytes} bytes, or another checksum)"
        )


def checksum(data: np.ndarray) -> int:
    """xxh3_64 of a contiguous array's bytes."""
    return xxhash.xxh3_64_intdigest(data.data)


def _pack(weights: list[tuple[str, Tensor]], size: int) -> tuple[BucketSpec, np.ndarray]:
    data = np.zeros(size, dtype=np.uint8)
    flat = torch.from_numpy(data)
    specs, offset = [], 0
    for name, tensor in weights:
        dtype = str(tensor.dtype).removeprefix("torch.")
        specs.append(TensorSpec(name, dtype, tuple(tensor.shape), offset))
        block = flat[offset : offset + tensor.nbytes]
        block.view(tensor.dtype).view(tensor.shape).copy_(tensor)
        offset += _aligned(tensor.nbytes)
    return BucketSpec(tuple(specs), size, checksum(data)), data


def _aligned(nbytes: int) -> int:
    """Room for a tensor; an empty one gets some, too, as no view can be made into no bytes."""
    return max(-(-nbytes // _ALIGNMENT), 1) * _ALIGNMENT
