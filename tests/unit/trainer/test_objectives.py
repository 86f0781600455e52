"""Objectives: the loss as written in the papers, however the batch is split."""

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.config.algorithm import LossAggregation
from lightrft_ray.trainer.aggregation import Denominators, count_denominators
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import Metrics, merge_metrics, metric_values
from lightrft_ray.trainer.objectives import (
    policy_objective,
    value_objective,
)

_ROWS, _WIDTH = 6, 4
_LENGTHS = [4, 1, 0, 3, 2, 4]  # a row without actions: its reward failed
_MASK = torch.arange(_WIDTH)[None] < torch.tensor(_LENGTHS)[:, None]
_HORIZON = 9
_DENOMINATORS = count_denominators(_MASK, horizon=_HORIZON)
_KL_COEF = 0.3

Objective = Callable[[Tensor, list[int]], tuple[Tensor, Metrics]]


def _tensor(seed: int) -> Tensor:
    values = torch.randn(_ROWS, _WIDTH, generator=torch.Generator().manual_seed(seed)) / 2
    return values.where(_MASK, 1e30)


def _experience(rows: list[int], *, has_reference: bool = True) -> ExperienceVL:
    return ExperienceVL(
        sequences=torch.zeros(len(rows), _WIDTH, dtype=torch.long),
        action_log_probs=_tensor(1)[rows],
        base_action_log_probs=_tensor(2)[rows] if has_reference else None,
        values=_tensor(3)[rows],
        returns=_tensor(4)[rows],
        advantages=_tensor(5)[rows],
        action_mask=_MASK[rows],
    )


def _policy(algorithm: AlgorithmConfig, **reference: bool) -> Objective:
    def objective(log_probs: Tensor, rows: list[int]) -> tuple[Tensor, Metrics]:
        return policy_objective(
            log_probs[rows],
            _tensor(7)[rows],
            _experience(rows, **reference),
            algorithm,
            denominators=_DENOMINATORS,
            kl_coef=_KL_COEF,
        )

    return objective


def _value(algorithm: AlgorithmConfig) -> Objective:
    def objective(values: Tensor, rows: list[int]) -> tuple[Tensor, Metrics]:
        return value_objective(
            values[rows], _experience(rows), algorithm, denominators=_DENOMINATORS
        )

    return objective


def _all_rows(objective: Objective) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Loss, gradient and metrics of the whole batch."""
    inputs = _tensor(6).requires_grad_()
    loss, metrics = objective(inputs, list(range(_ROWS)))
    (gradient,) = torch.autograd.grad(loss, inputs)
    return loss.detach(), gradient, metric_values(metrics)


def _slow_mean(token: Callable[[int, int], float]) -> float:
    """Mean over all actions of the batch, one float at a time."""
    places = [(row, step) for row, length in enumerate(_LENGTHS) for step in range(length)]
    return sum(token(*place) for place in places) / len(places)


def _slow_policy_loss(low: float, high: float, kl: Callable[[float], float]) -> float:
    current, old, base, advantages = (_tensor(seed).double().tolist() for seed in (6, 1, 2, 5))

    def token(i: int, t: int) -> float:
        ratio = math.exp(current[i][t] - old[i][t])
        clipped = min(max(ratio, low), high)
        surrogate = min(ratio * advantages[i][t], clipped * advantages[i][t])
        return -surrogate + kl(current[i][t] - base[i][t])

    return _slow_mean(token)


@pytest.mark.parametrize(
    ("estimator", "formula"),
    [
        ("k1", lambda d: d),
        ("k2", lambda d: d * d / 2),
        ("k3", lambda d: math.exp(-d) - 1 + d),
    ],
)
def test_the_policy_loss_has_the_clip_and_the_kl(
    estimator: Any, formula: Callable[[float], float]
) -> None:
    algorithm = AlgorithmConfig(eps_clip=0.1, eps_clip_high=0.3, kl_estimator=estimator)
    loss, _, metrics = _all_rows(_policy(algorithm))
    assert loss.item() == pytest.approx(
        _slow_policy_loss(0.9, 1.3, lambda d: _KL_COEF * formula(d)), rel=1e-5
    )
    assert metrics["loss"] == pytest.approx(loss.item())
    current, base = _tensor(6).double().tolist(), _tensor(2).double().tolist()
    assert metrics["ref_kl"] == pytest.approx(
        _slow_mean(lambda i, t: formula(current[i][t] - base[i][t])), rel=1e-5
    )


@pytest.mark.parametrize(
    ("use_kl_loss", "has_reference"), [(False, True), (True, False)], ids=["in-reward", "no-ref"]
)
def test_without_a_kl_in_the_loss(use_kl_loss: bool, has_reference: bool) -> None:
    algorithm = AlgorithmConfig(eps_clip=0.2, use_kl_loss=use_kl_loss)
    loss, _, metrics = _all_rows(_policy(algorithm, has_reference=has_reference))
    assert loss.item() == pytest.approx(_slow_policy_loss(0.8, 1.2, lambda _: 0.0), rel=1e-5)
    assert "ref_kl" not in metrics


def test_metrics_of_the_policy() -> None:
    _, _, metrics = _all_rows(_policy(AlgorithmConfig()))
    entropy = _tensor(7).double().tolist()
    assert metrics["entropy"] == pytest.approx(_slow_mean(lambda i, t: entropy[i][t]), rel=1e-5)


def test_tokens_are_weighted_and_the_denominators_stay() -> None:
    weights = _tensor(8)
    experience = _experience(list(range(_ROWS)), has_reference=False)
    experience.info = {"token_weights": weights}
    loss, _ = policy_objective(
        _tensor(6),
        _tensor(7),
        experience,
        AlgorithmConfig(policy_loss="reinforce"),
        denominators=_DENOMINATORS,
        kl_coef=0.0,
    )
    current, advantages, weight = (t.double().tolist() for t in (_tensor(6), _tensor(5), weights))
    expected = _slow_mean(lambda i, t: -weight[i][t] * current[i][t] * advantages[i][t])
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_value_loss_is_clipped_around_the_old_value() -> None:
    loss, _, metrics = _all_rows(
        _value(AlgorithmConfig(advantage_estimator="gae", value_clip=0.25))
    )
    current, old, returns = (_tensor(seed).double().tolist() for seed in (6, 3, 4))

    def errors(i: int, t: int) -> tuple[float, float]:
        change = min(max(current[i][t] - old[i][t], -0.25), 0.25)
        plain, bounded = current[i][t] - returns[i][t], old[i][t] + change - returns[i][t]
        return plain**2 / 2, bounded**2 / 2

    expected = _slow_mean(lambda i, t: max(errors(i, t)))
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    clipped = _slow_mean(lambda i, t: float(errors(i, t)[1] > errors(i, t)[0] + 1e-6))
    assert metrics["clip_fraction"] == pytest.approx(clipped)
    assert 0 < clipped < 1


def test_values_may_change_freely_without_a_clip() -> None:
    loss, _, metrics = _all_rows(
        _value(AlgorithmConfig(advantage_estimator="gae", value_clip=None))
    )
    current, returns = (_tensor(seed).double().tolist() for seed in (6, 4))
    expected = _slow_mean(lambda i, t: (current[i][t] - returns[i][t]) ** 2 / 2)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert metrics["clip_fraction"] == 0


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_the_entropy_bonus_is_aggregated_like_the_loss(mode: Any) -> None:
    entropy = _tensor(7).requires_grad_()
    losses = []
    for coef in (0.0, 0.1):
        loss, metrics = policy_objective(
            _tensor(6),
            entropy,
            _experience(list(range(_ROWS)), has_reference=False),
            AlgorithmConfig(loss_aggregation=mode, entropy_coef=coef),
            denominators=_DENOMINATORS,
            kl_coef=0.0,
        )
        losses.append(loss)
        assert metric_values(metrics)["loss"] == pytest.approx(loss.item())
    (gradient,) = torch.autograd.grad(losses[1], entropy)
    used = sum(length > 0 for length in _LENGTHS)
    lengths = torch.tensor(_LENGTHS)[:, None].clamp(min=1)
    weights = {
        "token-mean": torch.full((_ROWS, 1), 1 / sum(_LENGTHS)),
        "seq-mean-token-mean": 1 / (lengths * used),
    }[mode]
    weights = weights.expand(_ROWS, _WIDTH).where(_MASK, 0.0)
    torch.testing.assert_close(gradient, -0.1 * weights)
    bonus = (entropy.detach().where(_MASK, 0.0) * weights).sum()
    torch.testing.assert_close(losses[0] - losses[1], 0.1 * bonus)


@pytest.mark.parametrize("mode", get_args(LossAggregation))
def test_the_tokens_losses_are_aggregated_as_told(mode: Any) -> None:
    """Of the loss −A · log π, one float at a time."""
    algorithm = AlgorithmConfig(policy_loss="reinforce", loss_aggregation=mode)
    loss, _, metrics = _all_rows(_policy(algorithm, has_reference=False))
    current, advantages = (_tensor(seed).double().tolist() for seed in (6, 5))
    used, total = sum(length > 0 for length in _LENGTHS), 0.0
    for i, length in enumerate(_LENGTHS):
        divisor = {
            "token-mean": sum(_LENGTHS),
            "seq-mean-token-mean": used * length,
            "seq-mean-token-sum": used,
            "seq-mean-token-sum-norm": used * _HORIZON,
        }[mode]
        total += sum(-current[i][t] * advantages[i][t] / divisor for t in range(length))
    assert loss.item() == pytest.approx(total, rel=1e-5)
    assert metrics["loss"] == pytest.approx(total, rel=1e-5)


_OBJECTIVES = {
    "value": _value(AlgorithmConfig()),
    **{
        f"{loss}, {mode}": _policy(AlgorithmConfig(policy_loss=loss, loss_aggregation=mode))
        for loss, mode in [
            ("ppo", "token-mean"),
            ("ppo_dual_clip", "seq-mean-token-mean"),
            ("gspo", "seq-mean-token-sum"),
            ("cpgd", "seq-mean-token-sum-norm"),
        ]
    },
}


@pytest.mark.parametrize("name", _OBJECTIVES)
@settings(deadline=None, max_examples=40)
@given(places=st.lists(st.integers(0, 3), min_size=_ROWS, max_size=_ROWS))
def test_micro_batches_add_up(name: str, places: list[int]) -> None:
    """However rows are split: losses and gradients are sums, and metrics those of the whole."""
    objective = _OBJECTIVES[name]
    loss, gradient, metrics = _all_rows(objective)
    inputs = _tensor(6).requires_grad_()
    merged: Metrics = {}
    losses = []
    for batch in sorted(set(places)):
        rows = [row for row, place in enumerate(places) if place == batch]
        part, measured = objective(inputs, rows)
        part.backward()
        losses.append(part.detach())
        merged = merge_metrics(merged, measured)
    torch.testing.assert_close(torch.stack(losses).sum(), loss)
    torch.testing.assert_close(inputs.grad, gradient)
    assert metric_values(merged) == pytest.approx(metrics, rel=1e-5)


@pytest.mark.parametrize("make", [_policy, _value], ids=["policy", "value"])
def test_padding_has_no_gradient(make: Callable[[AlgorithmConfig], Objective]) -> None:
    _, gradient, _ = _all_rows(make(AlgorithmConfig()))
    assert gradient.isfinite().all()
    assert (gradient[~_MASK] == 0).all()
    assert (gradient[_MASK] != 0).any()


def test_what_is_missing_is_named() -> None:
    algorithm, nothing = AlgorithmConfig(), Denominators(1, 1)
    policy, value = _experience([0]), _experience([0])
    policy.advantages, value.returns = None, None
    with pytest.raises(ValueError, match=r"experience\.advantages is missing"):
        policy_objective(
            _tensor(6)[:1], _tensor(7)[:1], policy, algorithm, denominators=nothing, kl_coef=0.0
        )
    with pytest.raises(ValueError, match=r"experience\.returns is missing"):
        value_objective(_tensor(6)[:1], value, algorithm, denominators=nothing)
    policy.action_mask = None
    with pytest.raises(ValueError, match=r"experience\.action_mask is missing"):
        policy_objective(
            _tensor(6)[:1], _tensor(7)[:1], policy, algorithm, denominators=nothing, kl_coef=0.0
        )
