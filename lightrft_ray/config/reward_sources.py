"""The settings of rewards that come from several places: functions, services and models."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from lightrft_ray.config.fields import NonEmptyStr, PositiveFraction, Section, reject_unused
from lightrft_ray.config.remote_reward import RemoteRewardConfig

RewardName = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]
Argument = str | int | float | bool
Recipe = dict[RewardName, float]


class RewardFunctionConfig(Section):
    """A reward function under a name of its own."""

    function: NonEmptyStr
    """Ready-made name, path/to/file.py that defines reward_func, or package.module.function."""
    arguments: dict[NonEmptyStr, Argument] = Field(default={})
    """Values for parameters of the function's own, such as a limit."""


class RewardModelConfig(Section):
    """A reward model in Ray actors on processes or GPUs of its own."""

    kind: Literal["scalar_model", "judge"] = "scalar_model"
    """A model with a scalar head, or a chat model under vLLM that writes verdicts."""
    pretrain: NonEmptyStr
    """Hugging Face name or folder."""
    num_workers: PositiveInt = 1
    """Actors that share the samples."""
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0
    """GPUs of each actor (0: CPU); below 1, models share a GPU."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Parameter type."""
    micro_batch_size: PositiveInt = 32
    """Samples of one forward pass (scalar_model)."""
    gpu_memory_utilization: PositiveFraction = 0.85
    """Share of a GPU's memory that vLLM takes (judge)."""
    template: NonEmptyStr | None = None
    """What the judge is asked, with {prompt}, {response}, {reference} and {label} (judge)."""
    verdict_pattern: NonEmptyStr | None = None
    r"""Regular expression for a line of the answer whose one group is the verdict (judge; null:
    a line "Verdict: ...")."""
    verdict_scores: dict[NonEmptyStr, float] = Field(default={})
    """Scores of the verdicts that are words, such as {yes: 1, no: 0} (judge; empty: a number)."""
    max_new_tokens: PositiveInt = 512
    """Longest answer in tokens (judge)."""
    max_model_len: PositiveInt = 4096
    """Longest question with its answer in tokens (judge)."""
    max_images: NonNegativeInt = 0
    """Most images of a prompt that are shown (judge; 0: it sees none)."""

    @model_validator(mode="after")
    def _settings_fit_the_kind(self) -> Self:
        of_judges = (
            *("template", "verdict_pattern", "verdict_scores", "max_new_tokens"),
            *("max_model_len", "max_images", "gpu_memory_utilization"),
        )
        users = {name: {"judge"} for name in of_judges} | {"micro_batch_size": {"scalar_model"}}
        reject_unused(self, "reward.models", "kind", self.kind, users)
        if self.kind == "judge" and self.template is None:
            raise ValueError("reward.models: a judge needs its question: set template")
        if self.max_new_tokens >= self.max_model_len:
            raise ValueError(
                f"reward.models.max_new_tokens {self.max_new_tokens} leaves the question none of "
                f"max_model_len {self.max_model_len}: set it lower"
            )
        if self.gpus_per_worker > 1 and self.gpus_per_worker % 1:
            raise ValueError(
                f"reward.models.gpus_per_worker {self.gpus_per_worker:g}: set a whole number, or "
                "a share below 1"
            )
        if self.kind == "scalar_model" and self.gpus_per_worker > 1:
            raise ValueError(
                f"reward.models.gpus_per_worker {self.gpus_per_worker:g}: a scalar_model runs on "
                "one GPU: set it to 1, or num_workers higher"
            )
        return self


def check_recipes(
    recipes: Mapping[str, Recipe],
    functions: Mapping[str, RewardFunctionConfig],
    remotes: Mapping[str, RemoteRewardConfig],
    models: Mapping[str, RewardModelConfig],
) -> None:
    """ValueError for weights that weigh nothing and for rewards that nothing uses."""
    for label, recipe in recipes.items():
        if not recipe:
            raise ValueError(
                f"reward.recipes {label} is empty: name a reward and its weight, or leave it out"
            )
        for name, weight in recipe.items():
            if weight == 0 or not math.isfinite(weight):
                raise ValueError(
                    f"reward.recipes {label}: the weight {weight:g} of {name} is of no use: set "
                    f"another, or leave {name} out"
                )
    declared: dict[str, str] = {}
    named = (("functions", functions), ("remotes", remotes), ("models", models))
    for section, members in named:
        for name in members:
            if name in declared:
                raise ValueError(
                    f"reward.{section} and reward.{declared[name]} both name {name}: rename one"
                )
            declared[name] = section
    used = {name for recipe in recipes.values() for name in recipe}
    for name, section in declared.items():
        if name not in used:
            raise ValueError(
                f"reward.{section}.{name} does nothing: give {name} a weight in reward.recipes, "
                f"or leave it out of reward.{section}"
            )
    for name, remote in remotes.items():
        if not remote.addresses:
            raise ValueError(f"reward.remotes.{name} has no address: set its remote_rm_url")
