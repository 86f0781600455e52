"""Which groups and which tokens are trained on."""

from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run
from golden_losses import policy_tensors, token_loss

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.aggregation import count_denominators
from lightrft_ray.trainer.policy_losses import policy_loss
from lightrft_ray.trainer.selection import high_entropy_mask, informative_groups


def _filter(case: Case) -> dict[str, Any]:
    if case.has("shaped_rewards"):
        case.floats("shaped_rewards")  # present to mislead: the choice must not look at them
    selection = informative_groups(
        case.floats("values"),
        case.integers("group_ids"),
        tolerance=case.param("tol"),
        keep_singletons=case.param("keep_singletons"),
    )
    return {"kept_group_ids": selection.group_ids, "kept_indices": selection.rows}


def _entropy_mask(case: Case) -> dict[str, Any]:
    tensors = policy_tensors(case)
    log_probs, mask = tensors[0], tensors[3]
    selected = high_entropy_mask(case.floats("entropy"), mask, ratio=case.param("ratio"))
    result = policy_loss(
        *tensors,
        token_loss=token_loss(case),
        aggregation=case.param("agg"),
        denominators=count_denominators(mask),
        token_weights=selected,
    )
    return {
        "selected": selected,
        "n_selected": selected.sum(),
        "loss": result.loss,
        "grad_log_probs": torch.autograd.grad(result.loss, log_probs)[0],
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("dynamic_sampling"), ids=str)
def test_dynamic_sampling_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"filter": _filter})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("entropy_mask"), ids=str)
def test_entropy_mask_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"entropy_mask": _entropy_mask}, information=["per_row_variant"])


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1])
def test_a_ratio_outside_its_range_is_refused(ratio: float) -> None:
    with pytest.raises(UserError, match=str(ratio)):
        high_entropy_mask(torch.ones(1, 2), torch.ones(1, 2), ratio=ratio)


def test_a_batch_without_actions_selects_nothing() -> None:
    assert not high_entropy_mask(torch.ones(2, 3), torch.zeros(2, 3), ratio=0.5).any()


def test_rounding_does_not_add_a_token() -> None:
    entropy = torch.arange(100.0).view(4, 25)
    assert 0.07 * 100 > 7

    assert high_entropy_mask(entropy, torch.ones(4, 25), ratio=0.07).sum() == 7
