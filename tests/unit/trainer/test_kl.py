"""KL estimates, controllers and token rewards."""

from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.kl import (
    AdaptiveKLController,
    FixedKLController,
    kl_controller,
    kl_estimate,
    token_rewards,
)
from lightrft_ray.trainer.masked import masked_mean


def _kl_estimate(case: Case) -> dict[str, Any]:
    log_probs = case.floats("log_probs").requires_grad_()
    mask = case.mask()
    kl = kl_estimate(
        log_probs,
        case.floats("ref_log_probs"),
        mask,
        estimator=case.param("estimator"),
        input_clamp=case.param("input_clamp"),
        output_clamp=case.param("output_clamp"),
    )
    (gradient,) = torch.autograd.grad(kl.sum(), log_probs)
    return {
        "kl": kl,
        "seq_mean": masked_mean(kl, mask, dim=-1),
        "token_mean": masked_mean(kl, mask),
        "d_kl_d_log_probs": gradient,
    }


def _controller(case: Case) -> FixedKLController | AdaptiveKLController:
    if case.param("type") == "fixed":
        return FixedKLController(case.param("init"))
    return AdaptiveKLController(
        case.param("init"), target=case.param("target"), horizon=case.param("horizon")
    )


def _kl_controller(case: Case) -> dict[str, Any]:
    controller = _controller(case)
    values = []
    for kl, n_steps in zip(case.raw_input("kl"), case.raw_input("n_steps"), strict=True):
        controller.update(kl, n_steps)
        values.append(controller.value)
    return {"value_after": values}


def _token_reward(case: Case) -> dict[str, Any]:
    rewards = token_rewards(
        case.floats("score"),
        case.floats("kl"),
        case.mask(),
        kl_coef=case.param("beta"),
        score_range=case.param("reward_clip"),
    )
    return {"rewards": rewards, "row_sum": rewards.sum(dim=-1)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("kl"), ids=str)
def test_kl_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"kl_estimate": _kl_estimate, "kl_controller": _kl_controller})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("kl_reward"), ids=str)
def test_kl_reward_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"token_reward": _token_reward})


def test_k3_keeps_tiny_divergences_in_float32() -> None:
    log_probs = torch.tensor([[-1.0 - 2**-13]])

    kl = kl_estimate(log_probs, torch.tensor([[-1.0]]), torch.ones(1, 1), estimator="k3")

    assert kl.item() == pytest.approx(2**-27, rel=1e-3)


def test_an_adaptive_controller_resumes_where_it_stopped() -> None:
    stopped = AdaptiveKLController(0.1, target=1.0, horizon=100)
    stopped.update(5.0, 50)
    resumed = AdaptiveKLController(0.1, target=1.0, horizon=100)

    resumed.load_state_dict(stopped.state_dict())

    assert resumed.value == stopped.value == pytest.approx(0.11)


def test_the_configured_controller() -> None:
    fixed = kl_controller(AlgorithmConfig(init_kl_coef=0.3))
    fixed.update(99.0, 1000)
    assert fixed.value == 0.3
    adaptive = kl_controller(AlgorithmConfig(init_kl_coef=0.3, kl_target=0.1))
    adaptive.update(1.0, 1000)
    assert adaptive.value == pytest.approx(0.3 * (1 + 0.2 * 1000 / 10_000))
    quick = kl_controller(AlgorithmConfig(init_kl_coef=0.3, kl_target=0.1, kl_horizon=2000.0))
    quick.update(0.09, 1000)
    assert quick.value == pytest.approx(0.3 * (1 - 0.1 * 1000 / 2000))
