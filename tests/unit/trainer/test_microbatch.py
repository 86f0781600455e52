"""Dividing a batch: balance, and gradients that do not depend on the division."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run
from golden_losses import plain_denominators, policy_tensors, token_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.aggregation import (
    AGGREGATIONS,
    count_denominators,
    group_token_counts,
)
from lightrft_ray.trainer.microbatch import balanced_partition, token_budget_batches
from lightrft_ray.trainer.policy_losses import policy_loss

LossOfRows = Callable[[list[int]], Tensor]


def _mode_results(log_probs: Tensor, loss_of: LossOfRows, splits: list[Any]) -> dict[str, Any]:
    """Loss, micro losses and summed gradient; the gradient must be that of every split."""
    micro_losses = [[loss_of(rows) for rows in split] for split in splits]
    gradients = [torch.autograd.grad(sum(losses), log_probs)[0] for losses in micro_losses]
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0])
    return {
        "loss": sum(micro_losses[0]),
        "grad_log_probs": gradients[0],
        "micro_losses": [torch.stack(losses) for losses in micro_losses],
    }


def _invariance(case: Case) -> dict[str, Any]:
    tensors = policy_tensors(case)
    log_probs, mask = tensors[0], tensors[3]
    group_ids = case.integers("group_ids")
    denominators = count_denominators(mask, group_ids=group_ids, horizon=case.param("horizon"))
    group_tokens = group_token_counts(mask, group_ids)
    assert group_tokens.tolist() == case.integers("group_tokens")[group_ids].tolist()
    term, splits = token_loss(case), case.raw_input("splits")

    def loss_of(rows: list[int], mode: str) -> Tensor:
        return policy_loss(
            *(tensor[rows] for tensor in tensors),
            token_loss=term,
            aggregation=mode,
            denominators=denominators,
            group_tokens=group_tokens[rows],
        ).loss

    whole = policy_loss(
        *tensors, token_loss=term, aggregation="token-mean", denominators=denominators
    )
    return {
        "token_loss": whole.token_loss,
        "denominators": plain_denominators(denominators, mask),
        "modes": {
            mode: _mode_results(log_probs, partial(loss_of, mode=mode), splits)
            for mode in AGGREGATIONS
        },
    }


def _data_parallel(case: Case) -> dict[str, Any]:
    tensors = policy_tensors(case)
    log_probs, mask = tensors[0], tensors[3]
    denominators, dp_size = count_denominators(mask), case.param("dp_size")
    term, mode = token_loss(case), case.param("agg")
    rank_losses = [
        dp_size
        * policy_loss(
            *(tensor[rows] for tensor in tensors),
            token_loss=term,
            aggregation=mode,
            denominators=denominators,
        ).loss
        for rows in case.raw_input("ranks")
    ]
    loss = torch.stack(rank_losses).mean()
    return {
        "rank_losses": torch.stack(rank_losses),
        "loss": loss,
        "grad_log_probs": torch.autograd.grad(loss, log_probs)[0],
        "denominators": plain_denominators(denominators, mask),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("microbatch"), ids=str)
def test_microbatch_golden(case: Case, dtype: torch.dtype) -> None:
    adapters = {"invariance": _invariance, "data_parallel": _data_parallel}
    # What a library gets that normalises in each micro-batch, and a mode's mark as optional.
    run(case, dtype, adapters, information=["mean_of_local_means", "optional"])


_LENGTHS = st.lists(st.integers(1, 500), max_size=40)


def _sums(lengths: list[int], parts: list[list[int]]) -> list[int]:
    return [sum(lengths[index] for index in part) for part in parts]


@settings(max_examples=60, deadline=None)
@given(_LENGTHS, st.integers(1, 8))
def test_a_partition_has_every_sample_once_and_no_part_is_far_off(
    lengths: list[int], n_parts: int
) -> None:
    parts = balanced_partition(lengths, n_parts)

    assert len(parts) == n_parts
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    sums = _sums(lengths, parts)
    assert max(sums) - min(sums) <= max(lengths, default=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 8), st.randoms(use_true_random=False))
def test_equal_sizes(n_parts: int, size: int, random: Any) -> None:
    lengths = [random.randint(1, 500) for _ in range(n_parts * size)]

    parts = balanced_partition(lengths, n_parts, equal_size=True)

    assert [len(part) for part in parts] == [size] * n_parts
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))


def test_equal_sizes_need_a_multiple() -> None:
    with pytest.raises(UserError, match="5 samples cannot be shared evenly by 2 ranks"):
        balanced_partition([1] * 5, 2, equal_size=True)


def test_differencing_beats_longest_first() -> None:
    # Giving the longest remaining sample to the lightest part ends at 17 and 13.
    lengths = [8, 7, 6, 5, 4]

    assert sorted(_sums(lengths, balanced_partition(lengths, 2))) == [14, 16]


def test_long_tailed_lengths_balance_to_a_percent() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.empty(512).exponential_(1 / 300, generator=generator).long().add(1).tolist()
    mean = sum(lengths) / 8

    for equal_size in (False, True):
        sums = _sums(lengths, balanced_partition(lengths, 8, equal_size=equal_size))
        assert max(sums) < 1.01 * mean


@settings(max_examples=60, deadline=None)
@given(_LENGTHS, st.integers(1, 1000), st.integers(1, 5))
def test_token_budgets_hold_except_for_a_longer_sample(
    lengths: list[int], max_tokens: int, min_batches: int
) -> None:
    batches = token_budget_batches(lengths, max_tokens, min_batches=min_batches)

    assert len(batches) >= min_batches
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert max(_sums(lengths, batches)) <= max([max_tokens, *lengths])


def test_a_token_budget_is_used_well() -> None:
    assert len(token_budget_batches([30, 30, 30, 30], 60)) == 2
    assert token_budget_batches([5], 100, min_batches=3) == [[0], [], []]
