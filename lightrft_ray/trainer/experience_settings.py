"""What an experience maker needs of a run's settings, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightrft_ray.config import (
    AlgorithmConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainerConfig,
)
from lightrft_ray.config.reward import LENGTH_SHAPING_SETTINGS
from lightrft_ray.trainer.length_rewards import LengthShaping

# What these estimators do not use may all the same be part of an argument list.
_DISCOUNTS = ("gamma", "lambd")
_LENGTH_SETTINGS = ("correct_threshold", "length_shaping", *LENGTH_SHAPING_SETTINGS)


@dataclass(frozen=True)
class ExperienceSettings:
    """Sampling, reward shaping and advantages; the defaults are those of a run.

    `overlong_buffer_len` 0 means no penalty; `reward_clip_range` limits rewards to [low, high];
    `reward_running_norm` divides them by their running standard deviation; `dynamic_sampling`
    leaves out groups whose rewards are all equal; `length_rewards` shapes rewards by length.
    """

    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    n_samples_per_prompt: int = RolloutConfig().n_samples_per_prompt
    micro_rollout_batch_size: int = TrainerConfig().micro_rollout_batch_size
    max_new_tokens: int = RolloutConfig().generate_max_len
    overlong_buffer_len: int = 0
    overlong_buffer_penalty_factor: float = 1.0
    reward_clip_range: tuple[float, float] | None = None
    reward_running_norm: bool = False
    dynamic_sampling: bool = False
    length_rewards: LengthShaping = field(default_factory=LengthShaping)

    def __post_init__(self) -> None:
        for name in ("n_samples_per_prompt", "micro_rollout_batch_size", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: it must be at least 1")

    def with_discounts(self, gamma: float | None, lambd: float | None) -> AlgorithmConfig:
        """The algorithm with other discounts; estimators that have none leave them alone."""
        given = {"gamma": gamma, "lambd": lambd}
        changes = {name: value for name, value in given.items() if value is not None}
        for name, value in changes.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} {value}: it must be between 0 and 1")
        return self.algorithm.model_copy(update=changes)


def experience_settings(strategy: object) -> ExperienceSettings:
    """From None, `ExperienceSettings`, a `RunConfig`, or any object with `.args`.

    Raises ValueError for values that are not allowed; names the attribute.
    """
    if strategy is None:
        return ExperienceSettings()
    if isinstance(strategy, ExperienceSettings):
        return strategy
    if isinstance(strategy, RunConfig):
        return _from_run(strategy)
    if not hasattr(strategy, "args"):
        kind = type(strategy).__name__
        raise ValueError(f"strategy is a {kind}: give None, ExperienceSettings or one with .args")
    return _from_arguments(strategy.args)


def _from_run(config: RunConfig) -> ExperienceSettings:
    reward = config.reward
    _refuse_fire(config.rollout)
    if reward.reward_running_norm == "standardize" or reward.mask_truncated:
        raise ValueError(
            "the maker in one process knows neither reward.reward_running_norm standardize nor "
            "reward.mask_truncated: use scale or none, and false"
        )
    return ExperienceSettings(
        algorithm=config.algorithm,
        n_samples_per_prompt=config.rollout.n_samples_per_prompt,
        micro_rollout_batch_size=config.trainer.micro_rollout_batch_size,
        max_new_tokens=config.rollout.generate_max_len,
        overlong_buffer_len=reward.overlong_buffer_len or 0,
        overlong_buffer_penalty_factor=reward.overlong_penalty_factor or 1.0,
        reward_clip_range=reward.reward_clip_range,
        reward_running_norm=reward.reward_running_norm == "scale",
        dynamic_sampling=config.rollout.dynamic_sampling,
        length_rewards=LengthShaping.of(reward),
    )


def _refuse_fire(arguments: object) -> None:
    """Samples of one process carry no log-probs of their own: a hot token could not be weighed."""
    if getattr(arguments, "use_fire", False):
        raise ValueError(
            "the maker in one process knows no use_fire, as its samples do not tell the "
            "distribution they were drawn from: set it to false"
        )


def _from_arguments(args: object) -> ExperienceSettings:
    _refuse_fire(args)

    def given(name: str, default: object = None) -> object:
        value = getattr(args, name, None)
        return default if value is None else value

    names = [name for name in AlgorithmConfig.model_fields if name not in _DISCOUNTS]
    chosen = {name: given(name) for name in names if given(name) is not None}
    discounts = {name: given(name) for name in _DISCOUNTS if given(name) is not None}
    own = {
        name: given(name)
        for name in ExperienceSettings.__dataclass_fields__
        if name not in ("algorithm", "length_rewards") and given(name) is not None
    }
    if not given("overlong_buffer", False):
        own.pop("overlong_buffer_len", None)
    own.setdefault("max_new_tokens", given("generate_max_len", ExperienceSettings.max_new_tokens))
    algorithm = AlgorithmConfig(**chosen).model_copy(update=discounts)  # type: ignore[arg-type]
    by_length = {name: given(name) for name in _LENGTH_SETTINGS if given(name) is not None}
    shaping = LengthShaping.of(RewardConfig(**by_length))  # type: ignore[arg-type]
    return ExperienceSettings(algorithm=algorithm, length_rewards=shaping, **own)  # type: ignore[arg-type]
