"""Dividing a step: every sample once, ranks alike, denominators those of the optimizer step."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightrft_ray.driver.partition import divide_batch
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.batches import RankBatch
from lightrft_ray.workers.messages import GroupTokens

_WIDTH = 6


def _groups(sizes: Sequence[int], seed: int) -> list[GroupTokens]:
    """Group g has a prompt of random length; the first token of its samples is the row number."""
    random, row, groups = np.random.default_rng(seed), 0, []
    for size in sizes:
        responses = []
        for _ in range(size):
            responses.append(np.full(random.integers(1, _WIDTH + 1), row))
            row += 1
        groups.append(GroupTokens(np.zeros(random.integers(1, 40)), tuple(responses), None))
    return groups


def _experience(groups: Sequence[GroupTokens], failed: set[int]) -> ExperienceVL:
    """Every tensor holds the row number; rows in `failed` have no actions."""
    responses = [response for group in groups for response in group.responses]
    lengths = torch.tensor([len(response) for response in responses])
    lengths[list(failed)] = 0
    rows = torch.arange(float(len(responses)))[:, None].expand(-1, _WIDTH)
    return ExperienceVL(
        sequences=torch.zeros(len(responses), _WIDTH),
        action_log_probs=rows,
        advantages=rows,
        action_mask=torch.arange(_WIDTH)[None] < lengths[:, None],
    )


def _divide(
    sizes: Sequence[int], batch_size: int, ranks: int, failed: set[int], seed: int
) -> tuple[list[list[RankBatch]], ExperienceVL]:
    groups = _groups(sizes, seed)
    experience = _experience(groups, failed)
    shares = divide_batch(
        groups, experience, batch_size=batch_size, ranks=ranks, kl_coef=0.1, horizon=7
    )
    return shares, experience


def _rows(batch: RankBatch) -> list[int]:
    """The row numbers in a share's groups, which must be those in its tensors."""
    rows = [int(response[0]) for group in batch.groups for response in group.responses]
    assert batch.experience.advantages is not None
    assert batch.experience.advantages[:, 0].tolist() == rows
    assert batch.experience.action_log_probs[:, -1].tolist() == rows
    return rows


@st.composite
def _divisions(draw: st.DrawFn) -> tuple[list[int], int, int, set[int], int]:
    """(group sizes, batch size, ranks, failed rows, seed), where all counts divide."""
    ranks, steps = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    batch_size = ranks * draw(st.integers(1, 8))
    left, sizes = batch_size * steps, []
    while left:
        sizes.append(draw(st.integers(1, min(left, 6))))
        left -= sizes[-1]
    failed = draw(st.sets(st.integers(0, batch_size * steps - 1), max_size=5))
    return sizes, batch_size, ranks, failed, draw(st.integers(0, 99))


@given(_divisions())
def test_every_sample_is_trained_once_by_one_rank(
    division: tuple[list[int], int, int, set[int], int],
) -> None:
    sizes, batch_size, ranks, *_ = division
    shares, experience = _divide(*division)
    mask = experience.action_mask
    assert mask is not None
    assert len(shares) == ranks
    steps = list(zip(*shares, strict=True))
    assert len(steps) == sum(sizes) // batch_size
    for number, step in enumerate(steps):
        rows = [_rows(batch) for batch in step]
        assert {len(own) for own in rows} == {batch_size // ranks}
        expected = range(number * batch_size, (number + 1) * batch_size)
        assert sorted(row for own in rows for row in own) == list(expected)
        lengths = [int(mask[row].sum()) for row in expected]
        for batch, own in zip(step, rows, strict=True):
            assert torch.equal(batch.experience.action_mask, mask[own])
            assert batch.denominators.n_tokens == sum(lengths)
            assert batch.denominators.n_sequences == sum(length > 0 for length in lengths)
            assert batch.denominators.horizon == 7
            assert batch.kl_coef == 0.1
            assert batch.is_first == (number == 0)


@given(
    ranks=st.integers(1, 4),
    groups_a_rank=st.integers(1, 3),
    size=st.integers(1, 5),
    steps=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_groups_stay_whole_where_they_divide(
    ranks: int, groups_a_rank: int, size: int, steps: int, seed: int
) -> None:
    per_step = ranks * groups_a_rank
    shares, _ = _divide([size] * (per_step * steps), per_step * size, ranks, set(), seed)
    for share in shares:
        for batch in share:
            assert [len(group.responses) for group in batch.groups] == [size] * groups_a_rank


def test_ranks_get_like_numbers_of_tokens() -> None:
    """Long and short prompts are mixed, where taking them in order would part them."""
    prompts = [100] * 4 + [10] * 4
    groups = [
        GroupTokens(np.zeros(length), (np.array([2 * i]), np.array([2 * i + 1])), None)
        for i, length in enumerate(prompts)
    ]
    experience = _experience(groups, set())
    shares = divide_batch(groups, experience, batch_size=16, ranks=2, kl_coef=0.0, horizon=7)
    tokens = [sum(len(group.prompt_ids) for group in share[0].groups) for share in shares]
    assert tokens == [220, 220]


def test_an_experience_that_is_not_assembled_is_named() -> None:
    groups = _groups([2], 0)
    with pytest.raises(ValueError, match="action_mask is missing"):
        divide_batch(
            groups, ExperienceVL(torch.zeros(2, 3)), batch_size=2, ranks=1, kl_coef=0.0, horizon=7
        )
