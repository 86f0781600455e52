"""Advantages and returns."""

from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run
from torch import Tensor

from lightrft_ray.trainer.advantages import (
    clip_filtered,
    cumulative_returns,
    generalized_advantage_estimation,
    group_centred,
    group_normalized,
    leave_one_out,
    length_adaptive_lambda,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
)
from lightrft_ray.trainer.kl import token_rewards


def _policy_lambda(case: Case, mask: Tensor) -> float | Tensor:
    given = case.param("lambda_policy")
    if isinstance(given, dict):
        assert set(given) == {"length_adaptive_alpha"}
        return length_adaptive_lambda(mask, alpha=given["length_adaptive_alpha"]).to(case.dtype)
    return float(given)


def _gae(case: Case) -> dict[str, Any]:
    mask = case.mask()
    lambd = _policy_lambda(case, mask)
    advantages, returns = generalized_advantage_estimation(
        case.floats("values"),
        case.floats("rewards"),
        mask,
        gamma=case.param("gamma"),
        lambd=lambd,
        value_lambd=case.param("lambda_value"),
    )
    rows = torch.as_tensor(lambd).expand(len(mask))
    return {"advantages": advantages, "returns": returns, "lambda_policy_per_row": rows}


def _discounted(case: Case) -> dict[str, Any]:
    returns = cumulative_returns(case.floats("rewards"), case.mask(), gamma=case.param("gamma"))
    return {"returns": returns}


def _cpgd(case: Case, scores: Tensor, group_ids: Tensor) -> Tensor:
    weight = case.param("weight")
    if weight == "equal":
        return group_centred(scores, group_ids)
    if weight == "std":
        return _grpo(case, scores, group_ids)
    assert weight == "clip_filter"
    return clip_filtered(scores, group_ids, cap=case.param("cap"))


def _grpo(case: Case, scores: Tensor, group_ids: Tensor) -> Tensor:
    assert case.param("ddof") == 1
    return group_normalized(scores, group_ids, eps=case.param("eps"))


def _group_scalar(case: Case) -> dict[str, Any]:
    method = {
        "grpo": _grpo,
        "mean": lambda _, scores, group_ids: group_centred(scores, group_ids),
        "rloo": lambda _, scores, group_ids: leave_one_out(scores, group_ids),
        "cpgd": _cpgd,
    }[case.param("method")]
    return {"advantages": method(case, case.floats("rewards"), case.integers("group_ids"))}


def _reinforce_pp(case: Case) -> dict[str, Any]:
    assert case.param("ddof") == 1
    mask = case.mask()
    rewards = token_rewards(
        case.floats("score"), case.floats("kl"), mask, kl_coef=case.param("beta")
    )
    advantages, returns = reinforce_plus_plus(
        rewards, mask, gamma=case.param("gamma"), eps=case.param("eps")
    )
    return {"token_rewards": rewards, "returns": returns, "advantages": advantages}


def _reinforce_pp_baseline(case: Case) -> dict[str, Any]:
    assert case.param("ddof") == 1
    advantages = reinforce_plus_plus_baseline(
        case.floats("rewards"), case.integers("group_ids"), case.mask(), eps=case.param("eps")
    )
    return {"advantages": advantages}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("gae"), ids=str)
def test_gae_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"gae": _gae})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("returns"), ids=str)
def test_returns_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"discounted": _discounted})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("group_advantages"), ids=str)
def test_group_advantages_golden(case: Case, dtype: torch.dtype) -> None:
    adapters = {
        "group_scalar": _group_scalar,
        "reinforce_pp": _reinforce_pp,
        "reinforce_pp_baseline": _reinforce_pp_baseline,
    }
    run(case, dtype, adapters)


def test_one_lambda_serves_policy_and_value_unless_decoupled() -> None:
    torch.manual_seed(0)
    values, rewards = torch.randn(2, 3, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 1, 0]])
    arguments = (values, rewards, mask)

    coupled = generalized_advantage_estimation(*arguments, gamma=0.9, lambd=0.7)
    spelled_out = generalized_advantage_estimation(
        *arguments, gamma=0.9, lambd=0.7, value_lambd=0.7
    )

    torch.testing.assert_close(coupled, spelled_out)


def test_with_lambda_one_returns_are_the_discounted_rewards() -> None:
    torch.manual_seed(0)
    values, rewards = torch.randn(2, 4, 6)
    mask = torch.rand(4, 6) < 0.7

    _, returns = generalized_advantage_estimation(values, rewards, mask, gamma=0.95, lambd=1.0)

    torch.testing.assert_close(returns, cumulative_returns(rewards, mask, gamma=0.95))


@pytest.mark.parametrize(
    "estimator", [group_normalized, group_centred, leave_one_out, clip_filtered]
)
def test_groups_of_one_and_constant_groups_give_exactly_zero(estimator: Any) -> None:
    scores = torch.tensor([0.1, 0.1, 0.1, 7.0])
    group_ids = torch.tensor([3, 3, 3, 8])

    assert estimator(scores, group_ids).tolist() == [0.0] * 4
