"""The settings of rewards: where they come from and how they are shaped."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import Fraction, NonEmptyStr, Section


class RewardConfig(Section):
    """Scoring of samples."""

    reward_fn: NonEmptyStr = "exact_match"
    """Ready-made name, path/to/file.py that defines reward_func, or package.module.function.
    A function may take prompts, responses, references, labels, each a list with one entry a sample.
    """
    reward_running_norm: Literal["none", "scale", "standardize"] = "none"
    """Divide rewards by the deviation of all rewards so far (standardize: and centre them)."""
    reward_clip_range: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Smallest and largest reward, after the running norm (null: no limits)."""
    overlong_buffer_len: PositiveInt | None = None
    """Tokens below generate_max_len from which on a penalty grows with the length (null: none)."""
    overlong_penalty_factor: PositiveFloat | None = None
    """The penalty at generate_max_len, taken off the reward after all else (null: 1.0)."""
    mask_truncated: bool = False
    """Leave responses cut by the length limit out of the loss and of the advantages of others."""
    max_failed_fraction: Fraction = 0.1
    """Share of samples without a reward past which the run stops."""
    reward_timeout: PositiveFloat = 60
    """Seconds to wait for the rewards of one batch."""

    @model_validator(mode="after")
    def _shaping_is_whole(self) -> Self:
        if self.reward_clip_range is not None:
            low, high = self.reward_clip_range
            if low >= high:
                raise ValueError(
                    f"reward.reward_clip_range [{low:g}, {high:g}] is reversed or empty: "
                    "set the smaller bound first, or reward.reward_clip_range to null"
                )
        if self.overlong_penalty_factor is not None and self.overlong_buffer_len is None:
            raise ValueError(
                "reward.overlong_penalty_factor does nothing without reward.overlong_buffer_len: "
                "set reward.overlong_buffer_len, or reward.overlong_penalty_factor to null"
            )
        return self
