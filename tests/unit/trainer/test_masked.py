"""Masked sums, means and whitening."""

import math

import pytest
import torch
from golden_cases import DTYPES, Case, load, run

from lightrft_ray.trainer.masked import masked_mean, masked_moments, masked_sum, masked_whiten
from lightrft_ray.trainer.moments import Moments


def _whiten(case: Case) -> dict[str, torch.Tensor]:
    values, mask = case.floats("values"), case.mask()
    assert case.param("ddof") == 1
    options = {"shift_mean": case.param("shift_mean"), "eps": case.param("eps")}
    whole = masked_whiten(values, mask, **options)
    shards = case.raw.get("shards")
    if shards is None:
        return {"whitened": whole}
    moments = Moments()
    for rows in shards:
        moments = moments.merge(masked_moments(values[rows], mask[rows]))
    in_parts = torch.empty_like(values)
    for rows in shards:
        in_parts[rows] = masked_whiten(values[rows], mask[rows], **options, moments=moments)
    torch.testing.assert_close(in_parts, whole)
    return {"whitened": in_parts}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("whiten"), ids=str)
def test_whiten_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"whiten": _whiten})


def test_an_all_masked_row_has_mean_zero_and_no_gradient() -> None:
    values = torch.tensor([[1.0, 3.0], [math.inf, math.nan]], requires_grad=True)
    mask = torch.tensor([[1, 1], [0, 0]])

    mean = masked_mean(values, mask, dim=-1)
    mean.sum().backward()

    assert mean.tolist() == [2.0, 0.0]
    assert values.grad is not None
    assert values.grad.tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_half_precision_is_summed_in_float32() -> None:
    values = torch.full((1, 1000), 1.001, dtype=torch.bfloat16)

    total = masked_sum(values, torch.ones(1, 1000))

    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(1000 * values[0, 0].item())


def test_whitening_keeps_a_small_spread_around_a_large_mean() -> None:
    values = torch.tensor([[1e4, 1e4 + 1 / 128, 1e4 + 1 / 64]])

    whitened = masked_whiten(values, torch.ones_like(values))

    assert whitened.tolist()[0] == pytest.approx([-1.0, 0.0, 1.0], abs=1e-3)
