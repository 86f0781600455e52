"""From samples and their scores to experience: KL, shaped rewards, advantages and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
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
    spread_over_actions,
)
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL
from lightrft_ray.trainer.kl import kl_estimate, token_rewards
from lightrft_ray.trainer.masked import masked_mean, masked_whiten

_WHITENING_EPS = 1e-8  # that of REINFORCE++ with a baseline
_KL_INPUT_CLAMP, _KL_OUTPUT_CLAMP = 20.0, 10.0  # one far-off token must not drown all others


@dataclass(frozen=True)
class Scores:
    """What the models and the reward function said of a batch of B samples.

    `rewards` (B,) is NaN where scoring failed: such a sample is masked out, never scored 0. So are
    those that `is_truncated` (B,) bool marks. Advantages are made of `shaped_rewards` (B,) where
    given. `group_ids` (B,) tells which samples share a prompt. Log-probs and values are (B, A);
    `rollout_log_probs` are the generator's, `action_entropy` is the learner's before the update.
    `process_rewards` (B, A) come on top of `rewards`: of tokens, or of steps at their last token,
    NaN elsewhere. `reward_components` has the parts of each sample's reward by name.
    """

    rewards: Tensor
    group_ids: Tensor
    action_log_probs: Tensor
    base_action_log_probs: Tensor | None = None
    values: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    action_entropy: Tensor | None = None
    shaped_rewards: Tensor | None = None
    is_truncated: Tensor | None = None
    process_rewards: Tensor | None = None
    reward_components: Sequence[Mapping[str, float]] | None = None

    @property
    def is_used(self) -> Tensor:
        """(B,) bool: samples that are trained on."""
        is_scored = self.rewards.isfinite()
        return is_scored if self.is_truncated is None else is_scored & ~self.is_truncated

    @property
    def total_rewards(self) -> Tensor:
        """(B,) rewards with the process rewards of each response added."""
        if self.process_rewards is None:
            return self.rewards
        return self.rewards + self.process_rewards.nan_to_num(nan=0.0).sum(dim=1)


def assemble_experience(
    samples: SamplesVL, scores: Scores, algorithm: AlgorithmConfig, *, kl_coef: float
) -> ExperienceVL:
    """Experience of a batched `samples`, in float32.

    `info` holds, each (B,): `reward` (unshaped, NaN where it failed), `kl` (mean of the response),
    `response_length`, `total_length`, and `group_ids`; and where there are any, a list of B
    `reward_components`.
    """
    if samples.action_mask is None:
        raise ValueError("assemble_experience takes the batched layout: action_mask is None")
    is_used = scores.is_used
    mask = samples.action_mask & is_used[:, None]
    shaped = scores.rewards if scores.shaped_rewards is None else scores.shaped_rewards
    rewards = shaped.where(is_used, 0.0)
    kl = reference_kl(scores, mask, algorithm)
    in_reward = 0.0 if algorithm.use_kl_loss else kl_coef
    scored = _Scored(
        rewards,
        kl,
        mask,
        scores.group_ids,
        scores.values,
        in_reward,
        algorithm,
        scores.process_rewards,
    )
    advantages, returns = _estimator(algorithm.advantage_estimator)(scored)
    if algorithm.whitens_advantages:
        advantages = masked_whiten(advantages, mask)
    return ExperienceVL(
        sequences=samples.sequences,
        image_grid_thws=samples.image_grid_thws,
        video_grid_thws=samples.video_grid_thws,
        action_log_probs=scores.action_log_probs,
        base_action_log_probs=scores.base_action_log_probs,  # type: ignore[arg-type]
        values=scores.values,  # type: ignore[arg-type]
        returns=returns,
        advantages=advantages,
        attention_mask=samples.attention_mask,
        action_mask=mask,  # type: ignore[arg-type]
        kl=kl,
        action_entropy=scores.action_entropy,
        info={
            "reward": scores.rewards,
            "kl": masked_mean(kl, mask, dim=1),
            "response_length": samples.response_length,
            "total_length": samples.total_length,
            "group_ids": scores.group_ids,
        }
        | _components(scores),
    )


def _components(scores: Scores) -> dict[str, object]:
    given = scores.reward_components
    return {} if given is None else {"reward_components": list(given)}


def reference_kl(scores: Scores, mask: Tensor, algorithm: AlgorithmConfig) -> Tensor:
    """Estimates of the KL to the reference, (B, A); 0 where masked, and without a reference."""
    if scores.base_action_log_probs is None:
        return torch.zeros_like(scores.action_log_probs)
    return kl_estimate(
        scores.action_log_probs,
        scores.base_action_log_probs,
        mask,
        estimator=algorithm.kl_estimator,
        input_clamp=_KL_INPUT_CLAMP,
        output_clamp=_KL_OUTPUT_CLAMP,
    )


@dataclass(frozen=True)
class _Scored:
    """What estimators work on; rewards (B,) are 0 and masks (B, A) empty where scoring failed.

    `kl_coef` is 0 where the KL is a part of the loss. `process` (B, A) is NaN where there is none.
    """

    rewards: Tensor
    kl: Tensor
    mask: Tensor
    group_ids: Tensor
    values: Tensor | None
    kl_coef: float
    algorithm: AlgorithmConfig
    process: Tensor | None

    def token_rewards(self) -> Tensor:
        """(B, A): the KL of each token, the process rewards, and the reward at the last."""
        rewards = token_rewards(self.rewards, self.kl, self.mask, kl_coef=self.kl_coef)
        if self.process is None:
            return rewards
        return rewards + self.process.nan_to_num(nan=0.0).where(self.mask, 0.0)

    def totals(self) -> Tensor:
        """(B,) rewards, less the KL with its sum over the response, as its tokens' rewards."""
        return self.rewards - self.kl_coef * self.kl.sum(dim=1)


_Result = tuple[Tensor, Tensor | None]  # advantages, and returns where there are any, (B, A)
_RowEstimator = Callable[[Tensor, Tensor], Tensor]  # (scores, group ids) to advantages, all (B,)


def _gae(scored: _Scored) -> _Result:
    if scored.values is None:
        raise ValueError("the estimator gae needs a critic's values")
    algorithm, mask = scored.algorithm, scored.mask
    alpha = algorithm.length_adaptive_alpha
    return generalized_advantage_estimation(
        scored.values,
        scored.token_rewards(),
        mask,
        gamma=algorithm.gamma,
        lambd=algorithm.lambd if alpha is None else length_adaptive_lambda(mask, alpha=alpha),
        value_lambd=algorithm.lambd_value,
    )


def _reinforce(scored: _Scored) -> _Result:
    returns = cumulative_returns(scored.token_rewards(), scored.mask, gamma=scored.algorithm.gamma)
    return returns, returns


def _reinforce_plus_plus(scored: _Scored) -> _Result:
    return reinforce_plus_plus(scored.token_rewards(), scored.mask, gamma=scored.algorithm.gamma)


def _reinforce_baseline(scored: _Scored) -> _Result:
    if scored.process is not None:
        centred, _ = _in_group(group_centred, scored)
        return masked_whiten(centred, scored.mask, eps=_WHITENING_EPS), None
    advantages = torch.zeros_like(scored.kl)
    used = scored.mask.any(dim=1)
    advantages[used] = reinforce_plus_plus_baseline(
        scored.totals()[used], scored.group_ids[used], scored.mask[used]
    )
    return advantages, None


def _in_group(estimator: _RowEstimator, scored: _Scored) -> _Result:
    """One advantage for all tokens of a sample, by comparison with the samples of its prompt.

    Process rewards are compared in the same way, each with those of all steps of the group, and a
    token gets the sum of what is to come (process supervision: 2402.03300, section 4.1.3).
    """
    totals = scored.totals()
    used = scored.mask.any(dim=1)
    advantages = torch.zeros_like(totals)
    advantages[used] = estimator(totals[used], scored.group_ids[used])
    of_outcome = spread_over_actions(advantages, scored.mask)
    if scored.process is None:
        return of_outcome, None
    is_step = scored.process.isfinite() & scored.mask
    of_steps = torch.zeros_like(of_outcome)
    group_ids = scored.group_ids[:, None].expand_as(is_step)[is_step]
    if is_step.any():
        of_steps[is_step] = estimator(scored.process[is_step], group_ids)
    return of_outcome + cumulative_returns(of_steps, scored.mask, gamma=1.0), None


def _estimator(name: str) -> Callable[[_Scored], _Result]:
    if name not in _ESTIMATORS:
        raise ValueError(f"advantage_estimator {name}: it is none of {', '.join(_ESTIMATORS)}")
    return _ESTIMATORS[name]


_ESTIMATORS: dict[str, Callable[[_Scored], _Result]] = {
    "gae": _gae,
    "reinforce": _reinforce,
    "reinforce_plus_plus": _reinforce_plus_plus,
    "reinforce_baseline": _reinforce_baseline,
    "rloo": partial(_in_group, leave_one_out),
    "group_norm": partial(_in_group, group_normalized),
    "dr_grpo": partial(_in_group, group_centred),
    "cpgd": partial(_in_group, clip_filtered),
}
