"""Buckets: what goes in comes out, within the size limit, and damage is noticed."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightrft_ray.config.errors import InfrastructureError
from lightrft_ray.sync.buckets import (
    BucketSpec,
    Parts,
    pack_buckets,
    unpack_bucket,
    write_bucket,
)

_ALIGNMENT = 64
_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.float16, torch.uint8)


def _weights(*shapes: tuple[int, ...]) -> list[tuple[str, Tensor]]:
    """Tensors of all types in turn, with values that no other type or position has."""
    weights, start = [], 1
    for index, shape in enumerate(shapes):
        count = int(np.prod(shape))
        tensor = torch.arange(start, start + count).reshape(shape)
        weights.append((f"layer.{index}", tensor.to(_DTYPES[index % len(_DTYPES)])))
        start += count
    return weights


def _block(spec: BucketSpec, parts: Parts) -> Tensor:
    """What a receiver has; between the tensors lies what lay there before."""
    block = np.full(spec.nbytes, 7, dtype=np.uint8)
    write_bucket(spec, parts, block)
    return torch.from_numpy(block)


def _round_trip(weights: list[tuple[str, Tensor]], limit: int) -> list[tuple[str, Tensor]]:
    received = []
    for spec, parts in pack_buckets(weights, limit):
        received += list(unpack_bucket(spec, _block(spec, parts)))
    return received


def _assert_same(received: list[tuple[str, Tensor]], sent: list[tuple[str, Tensor]]) -> None:
    assert [name for name, _ in received] == [name for name, _ in sent]
    for (name, got), (_, wanted) in zip(received, sent, strict=True):
        assert got.dtype == wanted.dtype, name
        assert got.shape == wanted.shape, name
        assert torch.equal(got, wanted), name


@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=12),
    limit=st.integers(1, 400),
)
def test_round_trip(shapes: list[tuple[int, ...]], limit: int) -> None:
    weights = _weights(*shapes)
    _assert_same(_round_trip(weights, limit), weights)


def test_scalars_and_empty_tensors_of_every_type() -> None:
    for dtype in _DTYPES:
        weights = [
            ("scalar", torch.tensor(3, dtype=dtype)),
            ("empty", torch.zeros(0, 4, dtype=dtype)),
            ("matrix", torch.arange(6).to(dtype).reshape(2, 3)),
        ]
        _assert_same(_round_trip(weights, 1000), weights)


def test_views_and_parameters_are_sent_as_what_they_show() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
    ((_, received),) = _round_trip([("w", parameter)], 1000)
    assert received.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_nothing_is_copied_before_it_is_written() -> None:
    weight = torch.arange(6.0)
    ((_, (part,)),) = pack_buckets([("w", weight)], 1000)
    assert part.__array_interface__["data"][0] == weight.data_ptr()


def test_a_value_that_changes_on_the_way_is_noticed() -> None:
    weight = torch.ones(3)
    ((spec, parts),) = pack_buckets([("w", weight)], 1000)
    weight.zero_()
    with pytest.raises(InfrastructureError, match="another checksum"):
        _block(spec, parts)


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=20), limit=st.integers(64, 800))
def test_buckets_keep_to_the_limit_and_are_not_split_early(sizes: list[int], limit: int) -> None:
    weights = [(str(i), torch.zeros(size, dtype=torch.uint8)) for i, size in enumerate(sizes)]
    specs = [spec for spec, _ in pack_buckets(weights, limit)]
    for spec, following in zip(specs, [*specs[1:], None], strict=True):
        assert spec.nbytes <= limit or len(spec.tensors) == 1
        if following is not None:
            units = max(-(-following.tensors[0].shape[0] // _ALIGNMENT), 1)
            assert spec.nbytes + units * _ALIGNMENT > limit


def test_a_tensor_larger_than_a_bucket_travels_alone() -> None:
    weights = [("a", torch.ones(2)), ("large", torch.ones(112)), ("b", torch.ones(2))]
    specs = [spec for spec, _ in pack_buckets(weights, 128)]
    assert [[tensor.name for tensor in spec.tensors] for spec in specs] == [["a"], ["large"], ["b"]]
    assert specs[1].nbytes == 448
    _assert_same(_round_trip(weights, 128), weights)


def test_tensors_start_at_multiples_of_the_alignment() -> None:
    weights = [(str(size), torch.ones(size, dtype=torch.uint8)) for size in (1, 63, 64, 65, 3)]
    ((spec, _),) = pack_buckets(weights, 1000)
    assert [tensor.offset for tensor in spec.tensors] == [0, 64, 128, 192, 320]
    assert spec.nbytes == 384


def test_no_weights_give_no_buckets() -> None:
    assert list(pack_buckets([], 100)) == []


@pytest.mark.parametrize("position", [0, 100, 127])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    weights = [("first", torch.ones(32)), ("second", torch.ones(32))]
    ((spec, parts),) = pack_buckets(weights, 1000)
    damaged = [parts[0], parts[1].copy()]
    damaged[1][position] ^= 1
    with pytest.raises(InfrastructureError, match="2 weights from first on arrived damaged"):
        _block(spec, damaged)
    _block(spec, parts)


def test_a_truncated_part_is_noticed() -> None:
    ((spec, (part,)),) = pack_buckets([("w", torch.ones(64))], 1000)
    with pytest.raises(InfrastructureError, match=r"240 of 256 bytes"):
        _block(spec, [part[:240]])


def test_two_parts_that_change_places_are_noticed() -> None:
    weights = [("zeros", torch.zeros(16)), ("ones", torch.ones(16))]
    ((spec, parts),) = pack_buckets(weights, 1000)
    with pytest.raises(InfrastructureError, match="another checksum"):
        _block(spec, parts[::-1])


def test_specifications_survive_as_plain_containers() -> None:
    ((spec, _),) = pack_buckets(_weights((2, 3), (), (0,)), 1000)
    fields = json.loads(json.dumps(spec.to_dict()))
    assert BucketSpec.from_dict(fields) == spec
    assert BucketSpec.from_dict(replace(spec, checksum=1).to_dict()) != spec
