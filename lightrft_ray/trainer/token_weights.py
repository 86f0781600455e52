"""Constants that weigh the tokens of a whole batch in the policy loss."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask
from lightrft_ray.trainer.metric_sums import Metrics
from lightrft_ray.trainer.off_policy import CORRECTIONS, importance_weights, mismatch_metrics

_BOUNDS = {"off_policy_cap": "cap", "off_policy_low": "low", "off_policy_high": "high"}


def weigh_tokens(
    experience: ExperienceVL, rollout_log_probs: Tensor, algorithm: AlgorithmConfig
) -> tuple[ExperienceVL, Metrics]:
    """The experience, with `info["token_weights"]` (B, A) where tokens differ, and metrics.

    `rollout_log_probs` (B, A) are the generator's. Metrics are those of `importance_weights`; there
    are none where the learner's log-probs before the update are not known.
    """
    if algorithm.old_log_probs == "rollout":
        return experience, {}
    mask = required_mask(experience)
    if algorithm.correction == "none":
        return experience, mismatch_metrics(experience.action_log_probs, rollout_log_probs, mask)
    bounds = {
        name: value
        for setting, name in _BOUNDS.items()
        if (value := getattr(algorithm, setting)) is not None
    }
    result = importance_weights(
        experience.action_log_probs,
        rollout_log_probs,
        mask,
        correction=partial(CORRECTIONS[algorithm.correction], **bounds),
    )
    info = {**(experience.info or {}), "token_weights": result.weights}
    return replace(experience, info=info), result.metrics
