"""The settings of the algorithm: advantages, KL and policy loss."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, model_validator

from lightrft_ray.config.fields import Fraction, Section, resolve_estimator_alias


class AlgorithmConfig(Section):
    """Advantages, KL and policy loss."""

    advantage_estimator: Annotated[
        Literal["group_norm", "gae"], BeforeValidator(resolve_estimator_alias)
    ] = "group_norm"
    """Advantages by comparison in the group (grpo is another name for it) or with a critic."""
    gamma: Fraction = 1.0
    """Discount of future rewards (gae only)."""
    lambd: Fraction = 1.0
    """Lambda of generalized advantage estimation (gae only)."""
    whiten_advantages: bool | None = None
    """Give the batch's advantages mean 0 and variance 1 (null: with gae only)."""
    init_kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL term against the reference (0: no reference)."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL from sampled tokens."""
    use_kl_loss: bool = True
    """KL as a loss term (false: taken off the reward)."""
    eps_clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The probability ratio is clipped below 1 - eps_clip."""
    eps_clip_high: PositiveFloat | None = None
    """The probability ratio is clipped above 1 + eps_clip_high (null: eps_clip)."""
    value_clip: PositiveFloat = 0.2
    """Largest change of a value in the critic's loss."""
    old_log_probs: Literal["rollout", "learner"] = "rollout"
    """Log-probs below the ratio: the generator's, or the learner's before the update."""

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """Smallest and largest probability ratio that the policy loss lets through."""
        high = self.eps_clip if self.eps_clip_high is None else self.eps_clip_high
        return 1 - self.eps_clip, 1 + high

    @property
    def whitens_advantages(self) -> bool:
        """`whiten_advantages` with its default filled in."""
        if self.whiten_advantages is None:
            return self.advantage_estimator == "gae"
        return self.whiten_advantages

    @model_validator(mode="after")
    def _discounts_need_a_critic(self) -> Self:
        for name in ("gamma", "lambd"):
            if self.advantage_estimator == "group_norm" and getattr(self, name) != 1.0:
                raise ValueError(
                    f"algorithm.{name} does nothing with algorithm.advantage_estimator "
                    f"group_norm: set algorithm.{name} to 1.0, or the estimator to gae"
                )
        return self
