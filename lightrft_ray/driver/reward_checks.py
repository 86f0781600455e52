"""What can be known to be wrong with the rewards before a run."""

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import load_config
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.opening import function_specs
from lightrft_ray.rewards.recipes import check_names
from lightrft_ray.workers.devices import model_source
from lightrft_ray.workers.judge_settings import judge_template, verdict_rule


def check_rewards(config: RunConfig) -> None:
    """Load the functions, and look for the checkpoints of models. Raises UserError."""
    check_names(config.reward)
    for spec in function_specs(config.reward):
        load_reward(spec.name, spec.arguments, spec.setting)
    for name, model in config.reward.models.items():
        load_config(model_source(config, model.pretrain), f"reward.models.{name}.pretrain")
        if model.kind == "judge":
            judge_template(model)
            verdict_rule(model)
