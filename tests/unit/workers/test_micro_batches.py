"""Micro-batches: exact sizes, order kept, nothing lost; and the experience that goes with them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.batches import select_samples
from lightrft_ray.workers.messages import GroupTokens, split_micro_batches

_PER_ACTION = [
    "action_log_probs",
    "base_action_log_probs",
    "values",
    "returns",
    "advantages",
    "action_mask",
]


def _groups(sizes: list[int]) -> list[GroupTokens]:
    """Group g has the prompt [g]; its response s is [g, s]."""
    return [
        GroupTokens(np.array([g]), tuple(np.array([g, s]) for s in range(size)), None)
        for g, size in enumerate(sizes)
    ]


@given(sizes=st.lists(st.integers(0, 6), max_size=10), size=st.integers(1, 9))
def test_micro_batches_have_the_exact_size_and_lose_nothing(sizes: list[int], size: int) -> None:
    batches = split_micro_batches(_groups(sizes), size)
    counts = [sum(len(group.responses) for group in batch) for batch in batches]
    assert counts[:-1] == [size] * (len(counts) - 1)
    assert counts[-1] <= size
    assert counts[-1] > 0 or not any(sizes)
    found = []
    for batch in batches:
        for group in batch:
            assert len(group.responses) > 0
            assert all(response[0] == group.prompt_ids[0] for response in group.responses)
            found += [tuple(response) for response in group.responses]
    assert found == [(g, s) for g, count in enumerate(sizes) for s in range(count)]


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=10), size=st.integers(1, 9))
def test_groups_are_cut_at_borders_alone(sizes: list[int], size: int) -> None:
    """One piece a batch, and no more pieces than groups and borders make."""
    batches = split_micro_batches(_groups(sizes), size)
    for batch in batches:
        prompts = [int(group.prompt_ids[0]) for group in batch]
        assert len(prompts) == len(set(prompts))
    assert sum(len(batch) for batch in batches) <= len(sizes) + len(batches) - 1


def test_actions_are_the_response_tokens() -> None:
    group = GroupTokens(np.arange(4), (np.arange(3), np.arange(1), np.arange(2)), None)
    assert (group.action_count, group.token_count) == (6, 10)
    assert [len(response) for response in group.select(1, 3).responses] == [1, 2]
    assert group.select(1, 3).prompt_ids is group.prompt_ids


def _experience() -> ExperienceVL:
    per_action = {
        name: torch.arange(12.0).reshape(4, 3) + 100 * index
        for index, name in enumerate(_PER_ACTION)
    }
    return ExperienceVL(
        sequences=torch.arange(20).reshape(4, 5),
        attention_mask=torch.ones(4, 5),
        kl=torch.ones(4, 3),
        info={"reward": torch.ones(4), "token_weights": torch.arange(12.0).reshape(4, 3)},
        **per_action,
    )


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([3, 0, 2])], ids=["slice", "indices"])
@pytest.mark.parametrize("width", [None, 2])
def test_selecting_samples(rows: slice | torch.Tensor, width: int | None) -> None:
    whole = _experience()
    part = select_samples(whole, rows, width)
    for name in _PER_ACTION:
        assert torch.equal(getattr(part, name), getattr(whole, name)[rows][:, :width]), name
    assert len(part.sequences) == len(part.advantages)
    assert part.info is not None and part.info.keys() == {"token_weights"}
    assert torch.equal(part.info["token_weights"], whole.info["token_weights"][rows][:, :width])
    assert (part.kl, part.attention_mask) == (None, None)


def test_absent_tensors_stay_absent() -> None:
    whole = _experience()
    whole.values = whole.returns = None
    part = select_samples(whole, slice(0, 2))
    assert part.values is None
    assert part.returns is None
    assert part.advantages is not None
