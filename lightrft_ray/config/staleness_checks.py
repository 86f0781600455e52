"""Contradictions of settings with asynchronous generation, `rollout.max_staleness` above 0.

Each function raises a ValueError of one line that names the settings and the remedy.
"""

from lightrft_ray.config.algorithm import AlgorithmConfig
from lightrft_ray.config.evaluation import EvaluationConfig
from lightrft_ray.config.fields import reject_changed
from lightrft_ray.config.rollout import RolloutConfig

MAX_STALENESS_WITH_CRITIC = 1
"""With gae, values are those of the present critic and actions those of an older policy: the
advantages, which add up many of them, are of neither."""


def check_staleness(
    rollout: RolloutConfig, algorithm: AlgorithmConfig, evaluation: EvaluationConfig
) -> None:
    """What an asynchronous run cannot do, and what a synchronous one does not have."""
    staleness = rollout.max_staleness
    if staleness == 0:
        reject_changed(
            rollout,
            "rollout.over_age",
            "rollout.max_staleness 0",
            "rollout.max_staleness to 1 or more",
        )
        return
    _check_estimator(staleness, algorithm)
    if rollout.over_sample_rate:
        raise ValueError(
            "rollout.over_sample_rate cancels what is left of a step, which with "
            f"rollout.max_staleness {staleness} goes on into the next: set "
            "rollout.over_sample_rate to 0, or rollout.max_staleness to 0"
        )
    if rollout.dynamic_sampling:
        raise ValueError(
            "rollout.dynamic_sampling draws more batches for a step than rollout.max_staleness "
            f"{staleness} has room for: set rollout.max_staleness to 0, or "
            "rollout.dynamic_sampling to false"
        )
    if evaluation.eval_ema:
        raise ValueError(
            "evaluation.eval_ema gives the generators other weights for a while, and with "
            f"rollout.max_staleness {staleness} they sample training batches meanwhile: set "
            "rollout.max_staleness to 0, or evaluation.eval_ema to false"
        )


def _check_estimator(staleness: int, algorithm: AlgorithmConfig) -> None:
    if algorithm.advantage_estimator == "gae" and staleness > MAX_STALENESS_WITH_CRITIC:
        raise ValueError(
            f"rollout.max_staleness {staleness} is more than algorithm.advantage_estimator gae "
            f"bears: set rollout.max_staleness to {MAX_STALENESS_WITH_CRITIC} or less, or "
            "algorithm.advantage_estimator to group_norm"
        )
    if algorithm.policy_loss == "reinforce" and algorithm.old_log_probs == "rollout":
        raise ValueError(
            "algorithm.policy_loss reinforce takes samples to be of the present policy, which "
            f"those of rollout.max_staleness {staleness} are not: set algorithm.old_log_probs to "
            "learner, whose correction weighs them, or algorithm.policy_loss to ppo"
        )
