"""The settings of rewards: where they come from and how they are shaped."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import Fraction, NonEmptyStr, Section, reject_unused
from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.config.reward_sources import (
    Recipe,
    RewardFunctionConfig,
    RewardModelConfig,
    RewardName,
    check_recipes,
)

LENGTH_SHAPING_SETTINGS: dict[str, frozenset[str]] = {
    "length_shaping_factor": frozenset({"linear", "kimi"}),
    "cosine_correct": frozenset({"cosine"}),
    "cosine_wrong": frozenset({"cosine"}),
    "cosine_exceeded": frozenset({"cosine"}),
}
"""Settings that only some kinds of length shaping use, with those."""

_FromTo = Annotated[tuple[float, float], Field(strict=False)]


class RewardConfig(Section):
    """Scoring of samples."""

    reward_fn: NonEmptyStr = "exact_match"
    """Ready-made name, path/to/file.py that defines reward_func, or package.module.function.
    A function may take prompts, responses, references, labels, each a list with one entry a sample.
    """
    recipes: dict[NonEmptyStr, Recipe] = Field(default={})
    """Weights of rewards by label of the data; default is for labels without an entry. Names are
    ready-made or those of functions, remotes and models (empty: reward_fn alone)."""
    functions: dict[RewardName, RewardFunctionConfig] = Field(default={})
    """Reward functions by the name that recipes use."""
    remotes: dict[RewardName, RemoteRewardConfig] = Field(default={})
    """Reward services by the name that recipes use."""
    models: dict[RewardName, RewardModelConfig] = Field(default={})
    """Reward models in actors of their own by the name that recipes use."""
    function_timeout: PositiveFloat = 10
    """Seconds after which a call of a reward function is given up and its process killed."""
    function_processes: PositiveInt = 1
    """Processes of each reward function, among which a batch is shared out."""
    step_separator: NonEmptyStr = "\n\n"
    """Text between the steps of a response, for rewards that score each step."""
    correct_threshold: float | None = None
    """Reward from which on a response counts as correct (null: 0.5)."""
    length_shaping: Literal["none", "linear", "cosine", "kimi"] = "none"
    """Shaping by length before all else: a linear penalty, cosine in place of the reward, or kimi,
    which compares the lengths in the group."""
    length_shaping_factor: PositiveFloat | None = None
    """linear: the penalty at generate_max_len; kimi: weight of the length reward (null: 1.0)."""
    cosine_correct: _FromTo | None = None
    """Reward of a correct response at no tokens and at generate_max_len (cosine only; null:
    [2.0, 1.0])."""
    cosine_wrong: _FromTo | None = None
    """Reward of a wrong response at no tokens and at generate_max_len (cosine only; null:
    [-10.0, 0.0])."""
    cosine_exceeded: float | None = None
    """Reward of a response of generate_max_len tokens (cosine only; null: -10.0)."""
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
    """Seconds to wait for the rewards of one batch; samples without one by then are masked."""

    @model_validator(mode="after")
    def _sources_are_used(self) -> Self:
        check_recipes(self.recipes, self.functions, self.remotes, self.models)
        for name, remote in self.remotes.items():
            if remote.remote_deadline > self.reward_timeout:
                raise ValueError(
                    f"reward.remotes.{name}: remote_deadline {remote.remote_deadline:g} is beyond "
                    f"reward.reward_timeout {self.reward_timeout:g}: set it lower, or "
                    "reward.reward_timeout higher"
                )
        default = type(self).model_fields["reward_fn"].default
        if self.recipes and self.reward_fn != default:
            raise ValueError(
                f"reward.reward_fn {self.reward_fn} does nothing with reward.recipes: name it in "
                "reward.functions and give it a weight in reward.recipes, or leave it out"
            )
        return self

    @property
    def correct_from(self) -> float:
        """`correct_threshold` with its default filled in."""
        return 0.5 if self.correct_threshold is None else self.correct_threshold

    @model_validator(mode="after")
    def _length_shaping_uses_its_settings(self) -> Self:
        reject_unused(
            self, "reward", "length_shaping", self.length_shaping, LENGTH_SHAPING_SETTINGS
        )
        return self

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
