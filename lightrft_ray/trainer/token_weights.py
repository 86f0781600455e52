"""Constants that weigh the tokens of a whole batch in the policy loss."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask
from lightrft_ray.trainer.metric_sums import Metrics
from lightrft_ray.trainer.off_policy import CORRECTIONS, importance_weights, mismatch_metrics
from lightrft_ray.trainer.selection import high_entropy_mask

_BOUNDS = {"off_policy_cap": "cap", "off_policy_low": "low", "off_policy_high": "high"}


def weigh_tokens(
    experience: ExperienceVL, rollout_log_probs: Tensor, algorithm: AlgorithmConfig
) -> tuple[ExperienceVL, Metrics]:
    """The experience, with `info["token_weights"]` (B, A) where tokens differ, and metrics.

    Weights are those of the off-policy correction, and 0 for tokens that are not selected by their
    entropy. `rollout_log_probs` (B, A) are the generator's. Metrics are those of
    `importance_weights`; there are none where the learner's log-probs before the update are not
    known.
    """
    if algorithm.old_log_probs == "rollout":
        return experience, {}
    weights, metrics = _corrected(experience, rollout_log_probs, algorithm)
    if algorithm.selects_by_entropy:
        selected = _selected(experience, algorithm.high_entropy_token_ratio)
        weights = selected.float() if weights is None else weights * selected
    if weights is None:
        return experience, metrics
    info = {**(experience.info or {}), "token_weights": weights}
    return replace(experience, info=info), metrics


def _corrected(
    experience: ExperienceVL, rollout_log_probs: Tensor, algorithm: AlgorithmConfig
) -> tuple[Tensor | None, Metrics]:
    tensors = (experience.action_log_probs, rollout_log_probs, required_mask(experience))
    if algorithm.correction == "none":
        return None, mismatch_metrics(*tensors)
    bounds = {
        name: value
        for setting, name in _BOUNDS.items()
        if (value := getattr(algorithm, setting)) is not None
    }
    correction = partial(CORRECTIONS[algorithm.correction], **bounds)
    result = importance_weights(*tensors, correction=correction)
    return result.weights, result.metrics


def _selected(experience: ExperienceVL, ratio: float) -> Tensor:
    if experience.action_entropy is None:
        raise ValueError("experience.action_entropy is missing")
    return high_entropy_mask(experience.action_entropy, required_mask(experience), ratio=ratio)
