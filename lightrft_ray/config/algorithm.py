"""The settings of the algorithm: advantages, KL and policy loss."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, model_validator

from lightrft_ray.config.fields import (
    AtLeastOne,
    Fraction,
    PositiveFraction,
    Section,
    reject_unused,
    resolve_estimator_alias,
)

Estimator = Literal[
    "gae",
    "reinforce",
    "reinforce_plus_plus",
    "reinforce_baseline",
    "rloo",
    "group_norm",
    "dr_grpo",
    "cpgd",
]

GROUP_ESTIMATORS = frozenset({"reinforce_baseline", "rloo", "group_norm", "dr_grpo", "cpgd"})
"""Estimators that compare the samples of one prompt."""

_DISCOUNTING = frozenset({"gae", "reinforce", "reinforce_plus_plus"})
_WITH_CRITIC = frozenset({"gae"})
# reinforce_plus_plus and reinforce_baseline are whitened by definition.
_MAY_WHITEN = frozenset({"gae", "reinforce", "rloo", "group_norm", "dr_grpo", "cpgd"})

ESTIMATOR_SETTINGS: dict[str, frozenset[str]] = {
    "gamma": _DISCOUNTING,
    "lambd": _WITH_CRITIC,
    "lambd_value": _WITH_CRITIC,
    "length_adaptive_alpha": _WITH_CRITIC,
    "value_clip": _WITH_CRITIC,
    "whiten_advantages": _MAY_WHITEN,
}
"""Settings that only some estimators use, with those."""

PolicyLossName = Literal[
    "ppo",
    "ppo_dual_clip",
    "gspo",
    "gspo_token",
    "gmpo",
    "cispo",
    "cpgd",
    "sapo",
    "reinforce",
]
LossAggregation = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"
]

_CLIPPING = frozenset({"ppo", "ppo_dual_clip", "gspo", "gspo_token", "gmpo", "cispo", "cpgd"})

POLICY_LOSS_SETTINGS: dict[str, frozenset[str]] = {
    "eps_clip": _CLIPPING,
    "eps_clip_high": _CLIPPING,
    "dual_clip": frozenset({"ppo_dual_clip"}),
    "cpgd_drift_coef": frozenset({"cpgd"}),
    "cpgd_drift_cap": frozenset({"cpgd"}),
    "sapo_tau_pos": frozenset({"sapo"}),
    "sapo_tau_neg": frozenset({"sapo"}),
}
"""Settings that only some policy losses use, with those."""

_ONE_ADVANTAGE_A_RESPONSE = frozenset({"gspo", "gmpo"})

OffPolicyCorrection = Literal[
    "none",
    "token_truncate",
    "sequence_truncate",
    "token_mask",
    "sequence_mask",
    "geometric_mask",
    "geometric_mask_token_weight",
]

_TRUNCATING = frozenset({"token_truncate", "sequence_truncate"})
_MASKING = frozenset(
    {"token_mask", "sequence_mask", "geometric_mask", "geometric_mask_token_weight"}
)

OFF_POLICY_SETTINGS: dict[str, frozenset[str]] = {
    "off_policy_cap": _TRUNCATING,
    "off_policy_low": _MASKING,
    "off_policy_high": _MASKING,
}
"""Settings that only some off-policy corrections use, with those."""


class AlgorithmConfig(Section):
    """Advantages, KL and policy loss."""

    advantage_estimator: Annotated[Estimator, BeforeValidator(resolve_estimator_alias)] = (
        "group_norm"
    )
    """Advantages: with a critic (gae), from returns, or in the group (grpo means group_norm)."""
    gamma: Fraction = 1.0
    """Discount of future rewards (gae, reinforce and reinforce_plus_plus)."""
    lambd: Fraction = 1.0
    """Lambda of generalized advantage estimation (gae only)."""
    lambd_value: Fraction | None = None
    """Lambda of the critic's returns (gae only; null: that of the advantages)."""
    length_adaptive_alpha: PositiveFloat | None = None
    """Lambda of a response of L tokens is 1 - 1 / (alpha L) in place of lambd (gae only)."""
    whiten_advantages: bool | None = None
    """Give the batch's advantages mean 0 and variance 1 (null: with gae only)."""
    init_kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL term against the reference (0: no reference)."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL from sampled tokens."""
    use_kl_loss: bool = True
    """KL as a loss term (false: taken off the reward)."""
    kl_target: PositiveFloat | None = None
    """Mean KL of a token that the weight is steered towards, from init_kl_coef on (null: fixed)."""
    kl_horizon: PositiveFloat | None = None
    """Samples in which that weight changes by up to 20 percent (null: 10000)."""
    policy_loss: PolicyLossName = "ppo"
    """Loss of a response token, from its advantage and probability ratio."""
    loss_aggregation: LossAggregation = "token-mean"
    """Mean over tokens, or over samples of their tokens' mean, sum or sum / generate_max_len."""
    eps_clip: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The ratio is clipped below 1 - eps_clip; gmpo: its log below -eps_clip (null: the loss's own;
    ppo 0.2)."""
    eps_clip_high: PositiveFloat | None = None
    """The ratio is clipped above 1 + eps_clip_high; gmpo: its log above eps_clip_high (null:
    eps_clip)."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Ratio past which a bad action no longer pulls (ppo_dual_clip only; null: 3.0)."""
    cpgd_drift_coef: NonNegativeFloat | None = None
    """Weight of the pull back to the behaviour policy (policy_loss cpgd only; null: 0.0)."""
    cpgd_drift_cap: PositiveFloat | None = None
    """Largest ratio - 1 in that pull (policy_loss cpgd only; null: 2.0)."""
    sapo_tau_pos: PositiveFloat | None = None
    """Sharpness of the soft gate where the advantage is positive (sapo only; null: 1.0)."""
    sapo_tau_neg: PositiveFloat | None = None
    """Sharpness of the soft gate where it is not (sapo only; null: 1.05)."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the policy loss."""
    ptx_coef: PositiveFloat | None = None
    """Weight of the supervised loss on data.pretrain_data in the policy loss (null: 0.05)."""
    aux_loss_coef: NonNegativeFloat = 0.0
    """Weight of the load-balancing loss of a mixture-of-experts policy."""
    high_entropy_token_ratio: PositiveFraction = 1.0
    """Share of a batch's tokens that are trained on: those of the highest entropy (1: all)."""
    value_clip: PositiveFloat | None = 0.2
    """Largest change of a value that the critic's loss allows (null: any)."""
    old_log_probs: Literal["rollout", "learner"] = "rollout"
    """Log-probs below the ratio: the generator's, or the learner's before the update."""
    off_policy_correction: OffPolicyCorrection | None = None
    """Weights for the learner's log-probs before the update against the generator's (null:
    token_truncate with old_log_probs learner, else none; token_mask is IcePop)."""
    off_policy_cap: AtLeastOne | None = None
    """Largest weight (token_truncate and sequence_truncate only; null: 2.0)."""
    off_policy_low: Fraction | None = None
    """Ratio below which the masks drop a token or response (null: the mask's own)."""
    off_policy_high: AtLeastOne | None = None
    """Ratio above which the masks drop a token or response (null: the mask's own)."""

    @property
    def correction(self) -> OffPolicyCorrection:
        """`off_policy_correction` with its default filled in."""
        if self.off_policy_correction is None:
            return "token_truncate" if self.old_log_probs == "learner" else "none"
        return self.off_policy_correction

    @property
    def demonstration_coef(self) -> float:
        """`ptx_coef` with its default filled in."""
        return 0.05 if self.ptx_coef is None else self.ptx_coef

    @property
    def whitens_advantages(self) -> bool:
        """`whiten_advantages` with its default filled in."""
        if self.whiten_advantages is None:
            return self.advantage_estimator == "gae"
        return self.whiten_advantages

    @property
    def selects_by_entropy(self) -> bool:
        """Whether only some tokens are trained on, which needs the entropy before the update."""
        return self.high_entropy_token_ratio < 1

    @model_validator(mode="after")
    def _estimator_uses_its_settings(self) -> Self:
        reject_unused(
            self, "algorithm", "advantage_estimator", self.advantage_estimator, ESTIMATOR_SETTINGS
        )
        if self.length_adaptive_alpha is not None and self.lambd != 1.0:
            raise ValueError(
                "algorithm.length_adaptive_alpha takes the place of algorithm.lambd: set "
                "algorithm.lambd to 1.0, or algorithm.length_adaptive_alpha to null"
            )
        return self

    @model_validator(mode="after")
    def _policy_loss_uses_its_settings(self) -> Self:
        reject_unused(self, "algorithm", "policy_loss", self.policy_loss, POLICY_LOSS_SETTINGS)
        _check_clip_bounds(self.eps_clip, self.eps_clip_high)
        if self.cpgd_drift_cap is not None and not self.cpgd_drift_coef:
            raise ValueError(
                "algorithm.cpgd_drift_cap does nothing without a drift: set "
                "algorithm.cpgd_drift_coef above 0, or algorithm.cpgd_drift_cap to null"
            )
        if self.policy_loss in _ONE_ADVANTAGE_A_RESPONSE and self.advantage_estimator == "gae":
            raise ValueError(
                f"algorithm.policy_loss {self.policy_loss} takes one advantage a response, and "
                "algorithm.advantage_estimator gae gives one a token: set algorithm.policy_loss to "
                "gspo_token, or algorithm.advantage_estimator to group_norm"
            )
        return self

    @model_validator(mode="after")
    def _entropy_is_known(self) -> Self:
        if self.selects_by_entropy and self.old_log_probs == "rollout":
            raise ValueError(
                "algorithm.high_entropy_token_ratio needs the learner's entropy before the update: "
                "set algorithm.old_log_probs to learner, or "
                "algorithm.high_entropy_token_ratio to 1.0"
            )
        return self

    @model_validator(mode="after")
    def _correction_has_what_it_needs(self) -> Self:
        if self.correction != "none" and self.old_log_probs == "rollout":
            raise ValueError(
                f"algorithm.off_policy_correction {self.correction} compares the generator's "
                "log-probs with the learner's, and with algorithm.old_log_probs rollout the ratio "
                "of the loss does that: set algorithm.old_log_probs to learner, or "
                "algorithm.off_policy_correction to none"
            )
        reject_unused(
            self, "algorithm", "off_policy_correction", self.correction, OFF_POLICY_SETTINGS
        )
        if self.correction == "sequence_mask" and self.off_policy_high is None:
            raise ValueError(
                "algorithm.off_policy_correction sequence_mask masks nothing without a bound: set "
                "algorithm.off_policy_high, such as to 2.0, or another correction"
            )
        return self


def _check_clip_bounds(low: float | None, high: float | None) -> None:
    """Clip-higher has the wider bound above; the other way round they are taken for each other."""
    if low is not None and high is not None and high < low:
        raise ValueError(
            f"algorithm.eps_clip_high {high:g} is below algorithm.eps_clip {low:g}: set "
            "algorithm.eps_clip_high to algorithm.eps_clip or more, or to null"
        )
