"""Warnings of what is allowed and doubtful; of a KL exactly where its gradient is not the KL's."""

import math
from typing import Literal

import pytest

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings

_POLICY, _REFERENCE = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
_LOGITS = range(3)
_ESTIMATORS = {
    # name: (value, derivative) by d = log π − log π_ref
    "k1": (lambda d: d, lambda d: 1.0),
    "k2": (lambda d: d * d / 2, lambda d: d),
    "k3": (lambda d: math.exp(-d) - 1 + d, lambda d: 1 - math.exp(-d)),
}


def _score(action: int, logit: int) -> float:
    """∂ log π(action) / ∂ logit of a softmax."""
    return (action == logit) - _POLICY[logit]


def _expected_gradient(estimator: str, *, in_loss: bool) -> list[float]:
    """Over all actions: of the estimate itself, or of log π times the estimate as a cost."""
    value, derivative = _ESTIMATORS[estimator]
    gradient = []
    for logit in _LOGITS:
        total = 0.0
        for action, (p, q) in enumerate(zip(_POLICY, _REFERENCE, strict=True)):
            d = math.log(p / q)
            total += p * (derivative(d) if in_loss else value(d)) * _score(action, logit)
        gradient.append(total)
    return gradient


def _kl_gradient() -> list[float]:
    """Of KL(π ‖ π_ref), by differences of its closed form in the logits."""
    gradient, step = [], 1e-6
    for logit in _LOGITS:
        shifted = []
        for change in (step, -step):
            weights = [p * math.exp(change * (a == logit)) for a, p in enumerate(_POLICY)]
            policy = [weight / sum(weights) for weight in weights]
            shifted.append(
                sum(p * math.log(p / q) for p, q in zip(policy, _REFERENCE, strict=True))
            )
        gradient.append((shifted[0] - shifted[1]) / (2 * step))
    return gradient


@pytest.mark.parametrize("in_loss", [True, False])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_kl_is_warned_of_where_its_gradient_is_biased(
    estimator: Literal["k1", "k2", "k3"], in_loss: bool
) -> None:
    algorithm = {"kl_estimator": estimator, "use_kl_loss": in_loss, "init_kl_coef": 0.1}
    told = warnings(RunConfig.model_validate({"algorithm": algorithm}))
    gradient = _expected_gradient(estimator, in_loss=in_loss)
    is_exact = gradient == pytest.approx(_kl_gradient(), abs=1e-6)
    assert (told == []) == is_exact
    for line in told:
        assert "\n" not in line
        assert f"algorithm.kl_estimator {estimator}" in line and "algorithm.use_kl_loss" in line
    if in_loss and estimator == "k1":
        assert gradient == pytest.approx([0, 0, 0], abs=1e-12)


def test_the_defaults_are_not_warned_of() -> None:
    assert warnings(RunConfig()) == []


def test_reinforce_is_on_policy() -> None:
    trainer: dict[str, object] = {"max_epochs": 2}
    tree = {"algorithm": {"policy_loss": "reinforce"}, "trainer": trainer}
    (line,) = warnings(RunConfig.model_validate(tree))
    assert "2 updates" in line and "algorithm.policy_loss reinforce" in line
    trainer["max_epochs"] = 1
    assert warnings(RunConfig.model_validate(tree)) == []


def test_what_is_evaluated_and_what_is_exported_may_differ() -> None:
    tree: dict[str, dict[str, object]] = {"trainer": {"enable_ema": True}}
    (line,) = warnings(RunConfig.model_validate(tree))
    assert "hf_checkpoint" in line and "evaluation.eval_ema true" in line
    tree["evaluation"] = {"eval_ema": True}
    assert warnings(RunConfig.model_validate(tree)) == []


@pytest.mark.parametrize(
    ("correction", "told"), [("none", True), ("geometric_mask", True), ("token_truncate", False)]
)
def test_a_hot_first_token_needs_a_weight_of_its_own(correction: str, told: bool) -> None:
    algorithm = {"old_log_probs": "learner", "off_policy_correction": correction}
    tree: dict[str, object] = {"algorithm": algorithm}
    assert warnings(RunConfig.model_validate(tree)) == []
    lines = warnings(RunConfig.model_validate(tree | {"rollout": {"use_fire": True}}))
    assert bool(lines) == told
    assert all("off_policy_correction" in line and "rollout.use_fire" in line for line in lines)
