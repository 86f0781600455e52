"""Buckets of named tensors: the wire format of a weight publication.

A bucket is some tensors' bytes and the specification of how they lie in one block, so that a whole
model travels in a few objects and not in one call per tensor. The sender copies nothing: it shows
the object store where the tensors lie. Each bucket carries a checksum (xxh3_64 of the xxhash
library: a hash at memory speed).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
import xxhash
from torch import Tensor

from lightrft_ray.config.errors import InfrastructureError

_ALIGNMENT = 64  # bytes: a view as any dtype starts at a multiple of its size, and copies run fast


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a bucket; `dtype` as in ``torch.float32``, without the ``torch.``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Size without padding."""
        itemsize: int = getattr(torch, self.dtype).itemsize
        return int(np.prod(self.shape, dtype=np.int64)) * itemsize


@dataclass(frozen=True)
class BucketSpec:
    """What lies in a bucket of `nbytes` bytes, padding included; the checksum is without it."""

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


Parts = list[np.ndarray]
"""The bytes (uint8) of each tensor of a bucket, in order."""


def pack_buckets(
    weights: Iterable[tuple[str, Tensor]], bucket_bytes: int
) -> Iterator[tuple[BucketSpec, Parts]]:
    """Buckets of at most `bucket_bytes`, or of one larger tensor.

    The parts are views of tensors on the CPU, and copies of others: they must be used before the
    weights change.
    """
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


def write_bucket(spec: BucketSpec, parts: Sequence[np.ndarray], block: np.ndarray) -> None:
    """Lay a bucket's parts into a block of `spec.nbytes` bytes (uint8).

    Raises InfrastructureError where what then lies there is not what was sent.
    """
    digest = xxhash.xxh3_64()
    sizes_agree = [part.nbytes for part in parts] == [tensor.nbytes for tensor in spec.tensors]
    if sizes_agree:
        for tensor, part in zip(spec.tensors, parts, strict=True):
            copied = block[tensor.offset : tensor.offset + tensor.nbytes]
            np.copyto(copied, part)
            digest.update(copied.data)
    if not sizes_agree or digest.intdigest() != spec.checksum:
        received = sum(part.nbytes for part in parts)
        raise InfrastructureError(
            f"a bucket of {len(spec.tensors)} weights from {spec.tensors[0].name} on arrived "
            f"damaged ({received} of {sum(each.nbytes for each in spec.tensors)} bytes, or another "
            "checksum)"
        )


def unpack_bucket(spec: BucketSpec, data: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Views (name, tensor) into `data`, a uint8 tensor of the bucket's block."""
    for tensor in spec.tensors:
        dtype: torch.dtype = getattr(torch, tensor.dtype)
        block = data[tensor.offset : tensor.offset + tensor.nbytes]
        yield tensor.name, block.view(dtype).view(tensor.shape)


def _pack(weights: list[tuple[str, Tensor]], size: int) -> tuple[BucketSpec, Parts]:
    specs, parts, offset = [], [], 0
    digest = xxhash.xxh3_64()
    for name, tensor in weights:
        dtype = str(tensor.dtype).removeprefix("torch.")
        specs.append(TensorSpec(name, dtype, tuple(tensor.shape), offset))
        parts.append(tensor.contiguous().view(-1).view(torch.uint8).numpy())
        digest.update(parts[-1].data)
        offset += _aligned(tensor.nbytes)
    return BucketSpec(tuple(specs), size, digest.intdigest()), parts


def _aligned(nbytes: int) -> int:
    """Room for a tensor; an empty one gets some, too, as no view can be made into no bytes."""
    return max(-(-nbytes // _ALIGNMENT), 1) * _ALIGNMENT
