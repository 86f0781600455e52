"""Importance weights between generator and trainer."""

from functools import partial
from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run
from golden_losses import policy_tensors, token_loss

from lightrft_ray.trainer.aggregation import count_denominators
from lightrft_ray.trainer.metric_sums import merge_metrics, metric_values
from lightrft_ray.trainer.off_policy import CORRECTIONS, importance_weights
from lightrft_ray.trainer.policy_losses import policy_loss


def _correction(case: Case) -> dict[str, Any]:
    tensors = policy_tensors(case)
    log_probs, old_log_probs, _, mask = tensors
    bounds = {name: case.param(name) for name in ("cap", "low", "high") if case.has(name)}
    corrected = importance_weights(
        old_log_probs,
        case.floats("rollout_log_probs"),
        mask,
        correction=partial(CORRECTIONS[case.param("correction")], **bounds),
    )
    result = policy_loss(
        *tensors,
        token_loss=token_loss(case),
        aggregation=case.param("agg"),
        denominators=count_denominators(mask),
        token_weights=corrected.weights,
    )
    return {
        "weights": corrected.weights,
        "kept_rows": corrected.kept_rows,
        "loss": result.loss,
        "grad_log_probs": torch.autograd.grad(result.loss, log_probs)[0],
        "metrics": metric_values(corrected.metrics),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("off_policy"), ids=str)
def test_off_policy_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"correction": _correction})


@pytest.mark.parametrize("name", CORRECTIONS)
def test_metrics_of_micro_batches_merge_to_those_of_the_batch(name: str) -> None:
    torch.manual_seed(0)
    old, rollout = -2 + 0.01 * torch.randn(2, 5, 4)
    mask = torch.rand(5, 4) < 0.7
    weigh = partial(importance_weights, correction=CORRECTIONS[name])
    whole, first = weigh(old, rollout, mask), weigh(old[:2], rollout[:2], mask[:2])
    rest = weigh(old[2:], rollout[2:], mask[2:])

    merged = metric_values(merge_metrics(first.metrics, rest.metrics))

    assert merged == pytest.approx(metric_values(whole.metrics))


@pytest.mark.parametrize("name", ["sequence_mask", "geometric_mask", "geometric_mask_token_weight"])
def test_a_row_without_actions_is_kept_though_its_ratio_is_outside_the_band(name: str) -> None:
    log_probs, mask = torch.full((2, 3), -1.0), torch.tensor([[1, 1, 1], [0, 0, 0]])
    correction = partial(CORRECTIONS[name], low=2.0, high=3.0)

    result = importance_weights(log_probs, log_probs, mask, correction=correction)

    assert result.kept_rows.tolist() == [False, True]


@pytest.mark.parametrize("name", CORRECTIONS)
def test_a_product_beyond_float32_gives_finite_weights(name: str) -> None:
    old, rollout = torch.full((1, 50), -0.1), torch.full((1, 50), -9.0)

    weights = importance_weights(
        old, rollout, torch.ones(1, 50), correction=CORRECTIONS[name]
    ).weights

    assert weights.isfinite().all()
