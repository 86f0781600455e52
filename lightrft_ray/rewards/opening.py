"""The rewards that a run's settings name, ready to be asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from lightrft_ray.config import RewardConfig
from lightrft_ray.rewards.function_process import FunctionSpec
from lightrft_ray.rewards.function_source import open_function
from lightrft_ray.rewards.measured import MeasuredSource
from lightrft_ray.rewards.recipes import DEFAULT, ONLY, WeightedRewards, Weights
from lightrft_ray.rewards.remote.opening import open_remote
from lightrft_ray.rewards.sample import RewardSource

_GRACE = 5.0  # s: sources end by themselves in time, and then know which samples they scored


@dataclass(frozen=True)
class OpenedRewards:
    """All rewards of a run as one, and each of them by name."""

    whole: WeightedRewards
    by_name: Mapping[str, MeasuredSource]
    wants_media: bool


async def open_rewards(reward: RewardConfig, models: Mapping[str, RewardSource]) -> OpenedRewards:
    """The sources of `reward`; `models` are those of `reward.models`, ready.

    Call it within the event loop that will use them. Raises UserError for what cannot be loaded.
    """
    recipes = _recipes(reward)
    names = dict.fromkeys(name for recipe in recipes.values() for name in recipe)
    sources: dict[str, RewardSource] = {}
    wants_media = bool(models or reward.remotes)
    for name in names:
        if name in reward.remotes:
            remote = open_remote(reward.remotes[name])
            await remote.check()
            sources[name] = remote
        elif name in models:
            sources[name] = models[name]
        else:
            function = await open_function(
                function_spec(reward, name),
                processes=reward.function_processes,
                call_timeout=reward.function_timeout,
                total_timeout=reward.reward_timeout,
            )
            wants_media = wants_media or function.wants_media
            sources[name] = function
    limit = reward.reward_timeout + _GRACE
    measured = {name: MeasuredSource(source, limit) for name, source in sources.items()}
    return OpenedRewards(WeightedRewards(measured, recipes), measured, wants_media)


def function_spec(reward: RewardConfig, name: str) -> FunctionSpec:
    """The function behind a name in a recipe, or behind `reward_fn`."""
    if not reward.recipes:
        return FunctionSpec(reward.reward_fn)
    if name in reward.functions:
        declared = reward.functions[name]
        return FunctionSpec(declared.function, declared.arguments, f"reward.functions.{name}")
    return FunctionSpec(name)


def function_specs(reward: RewardConfig) -> list[FunctionSpec]:
    """The functions that a run uses."""
    others = {**reward.remotes, **reward.models}
    names = dict.fromkeys(name for recipe in _recipes(reward).values() for name in recipe)
    return [function_spec(reward, name) for name in names if name not in others]


def _recipes(reward: RewardConfig) -> Mapping[str, Weights]:
    return reward.recipes or {DEFAULT: {ONLY: 1.0}}
