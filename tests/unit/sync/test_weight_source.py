"""The learner's weights by name: in order, tied ones once, gathered some at a time."""

from collections.abc import Iterator

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lightrft_ray.models.plain_weights import PlainWeight, plain_weights
from lightrft_ray.sync.weight_source import (
    _weight_groups,
    full_state_dict,
    named_weights,
)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("not_a_weight", torch.ones(2))


def test_tied_weights_come_once_and_in_order() -> None:
    model = _Tied()
    weights = list(named_weights(model, gather_bytes=1000))
    assert [name for name, _ in weights] == ["embedding.weight", "body.weight", "body.bias"]
    assert all(torch.equal(weight, model.get_parameter(name)) for name, weight in weights)
    assert not any(weight.requires_grad for _, weight in weights)


@given(sizes=st.lists(st.integers(1, 9), max_size=12), limit=st.integers(1, 80))
def test_groups_keep_to_the_limit_unless_one_weight_is_larger(sizes: list[int], limit: int) -> None:
    model = nn.ParameterDict({f"w{i:02}": torch.zeros(size) for i, size in enumerate(sizes)})
    groups = list(_weight_groups(plain_weights(model), limit))
    assert [weight.name for group in groups for weight in group] == list(model)
    totals = [sum(4 * weight.parameter.numel() for weight in group) for group in groups]
    for index, (group, total) in enumerate(zip(groups, totals, strict=True)):
        assert total <= limit or len(group) == 1
        if index + 1 < len(groups):
            assert total + 4 * groups[index + 1][0].parameter.numel() > limit


def test_sharded_parameters_count_with_their_full_size() -> None:
    """ZeRO-3 leaves empty placeholders that carry the number of elements."""
    parameters = [nn.Parameter(torch.zeros(0)) for _ in range(3)]
    for parameter in parameters:
        parameter.ds_numel = 10
    weights = [PlainWeight(str(i), parameter, None) for i, parameter in enumerate(parameters)]
    assert [len(group) for group in _weight_groups(weights, gather_bytes=80)] == [2, 1]


def test_the_state_dict_holds_copies() -> None:
    model = _Tied()
    state = full_state_dict(named_weights(model, 1000), keep=True)
    with torch.no_grad():
        model.body.bias.add_(1)
    assert list(state) == ["embedding.weight", "body.weight", "body.bias"]
    assert torch.equal(state["body.bias"] + 1, model.body.bias)


def test_other_ranks_run_through_all_weights_and_keep_none() -> None:
    taken: list[str] = []

    def watched() -> Iterator[tuple[str, Tensor]]:
        for name, weight in named_weights(_Tied(), 1000):
            taken.append(name)
            yield name, weight

    assert full_state_dict(watched(), keep=False) == {}
    assert taken == ["embedding.weight", "body.weight", "body.bias"]
