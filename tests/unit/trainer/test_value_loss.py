"""The critic's loss."""

from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run

from lightrft_ray.trainer.aggregation import count_denominators
from lightrft_ray.trainer.metric_sums import metric_values
from lightrft_ray.trainer.value_loss import value_loss


def _value_loss(case: Case) -> dict[str, Any]:
    values = case.floats("values").requires_grad_()
    mask = case.mask()
    result = value_loss(
        values,
        case.floats("old_values"),
        case.floats("returns"),
        mask,
        clip=case.param("clip"),
        aggregation=case.param("agg"),
        denominators=count_denominators(mask),
    )
    (gradient,) = torch.autograd.grad(result.loss, values)
    return {"loss": result.loss, "grad_values": gradient, **metric_values(result.metrics)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("value_loss"), ids=str)
def test_value_loss_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"value_loss": _value_loss})


def test_values_inside_the_clip_range_are_never_counted_as_clipped() -> None:
    torch.manual_seed(0)
    values = 1e-3 * torch.randn(1, 10_000)  # far below the old ones, so that differences round
    old_values = 0.4 * (torch.rand_like(values) - 0.5)
    mask = (values - old_values).abs() <= 0.2

    result = value_loss(
        values,
        old_values,
        1e-2 * torch.randn_like(values),
        mask,
        clip=0.2,
        aggregation="token-mean",
        denominators=count_denominators(mask),
    )

    assert metric_values(result.metrics) == {"clip_fraction": 0.0}
