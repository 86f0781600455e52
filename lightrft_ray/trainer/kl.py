"""Estimates of KL(policy ‖ reference), coefficients for them, and KL-shaped token rewards."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.log_ratio import masked_log_ratio
from lightrft_ray.trainer.masked import zero_masked

_HORIZON = 10_000.0  # samples

KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda log_ratio: log_ratio,
    "k2": lambda log_ratio: log_ratio.square() / 2,
    "k3": lambda log_ratio: torch.expm1(-log_ratio) + log_ratio,
}
"""Estimators by name, as functions of d = log π − log π_ref."""


def kl_estimate(
    log_probs: Tensor,
    ref_log_probs: Tensor,
    action_mask: Tensor,
    *,
    estimator: str,
    input_clamp: float | None = None,
    output_clamp: float | None = None,
) -> Tensor:
    """Per-token estimate of KL(policy ‖ reference), (B, A); 0 where masked.

    With d = log π − log π_ref (Schulman, "Approximating KL divergence", 2020):

    - `k1` = d: unbiased, may be negative; its expected gradient is 0, so no use as a loss;
    - `k2` = d² / 2: biased, its gradient is that of the KL;
    - `k3` = exp(−d) − 1 + d: unbiased and never negative.

    d is limited to ±`input_clamp` first and the estimate to ±`output_clamp` afterwards, where
    given; the gradient is 0 where a clamp is active.
    """
    log_ratio = masked_log_ratio(log_probs, ref_log_probs, action_mask)
    if input_clamp is not None:
        log_ratio = log_ratio.clamp(-input_clamp, input_clamp)
    estimate = KL_ESTIMATORS[estimator](log_ratio)
    if output_clamp is not None:
        estimate = estimate.clamp(-output_clamp, output_clamp)
    return estimate


def token_rewards(
    scores: Tensor,
    kl: Tensor,
    action_mask: Tensor,
    *,
    kl_coef: float,
    score_range: tuple[float, float] | None = None,
) -> Tensor:
    """r_t = −kl_coef · kl_t, plus the score at the last action (Ouyang et al. 2022, 2203.02155).

    `scores` is (B,), `kl` and `action_mask` are (B, A); the result is (B, A) and 0 where masked.
    `score_range` limits the scores first. A negative coefficient counts as 0. The score of a row
    without actions goes nowhere.
    """
    if score_range is not None:
        scores = scores.clamp(*score_range)
    rewards = -max(kl_coef, 0.0) * zero_masked(kl, action_mask)
    positions = torch.arange(1, action_mask.size(1) + 1, device=action_mask.device)
    numbered = action_mask.bool() * positions
    is_last = (numbered == numbered.amax(dim=1, keepdim=True)) & action_mask.bool()
    return rewards + zero_masked(scores.unsqueeze(1).expand_as(rewards), is_last)


class FixedKLController:
    """A KL coefficient that stays as it is."""

    def __init__(self, value: float) -> None:
        self.value = value

    def update(self, kl: float, n_steps: int) -> None:
        """Takes the same arguments as the adaptive controller and changes nothing."""

    def state_dict(self) -> dict[str, float]:
        """Nothing: the coefficient comes from the configuration."""
        return {}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Keeps the configured coefficient."""


class AdaptiveKLController:
    """Steers the KL towards a target: Ziegler et al. 2019, 1909.08593, section 2.2.

    value ← value · (1 + clip(kl / target − 1, ±0.2) · n_steps / horizon)
    """

    def __init__(self, value: float, *, target: float, horizon: float) -> None:
        self.value = value
        self.target = target
        self.horizon = horizon

    def update(self, kl: float, n_steps: int) -> None:
        """One correction; `kl` is the mean of the last batch, `n_steps` its number of samples."""
        error = min(max(kl / self.target - 1, -0.2), 0.2)
        self.value *= 1 + error * n_steps / self.horizon

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must keep."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continues from `state_dict()`."""
        self.value = state["value"]


def kl_controller(algorithm: AlgorithmConfig) -> FixedKLController | AdaptiveKLController:
    """The configured course of the KL coefficient."""
    if algorithm.kl_target is None:
        return FixedKLController(algorithm.init_kl_coef)
    return AdaptiveKLController(
        algorithm.init_kl_coef,
        target=algorithm.kl_target,
        horizon=_HORIZON if algorithm.kl_horizon is None else algorithm.kl_horizon,
    )
