"""The reward that a server's settings name."""

from lightrft_ray.config.serve_reward import ServeRewardConfig
from lightrft_ray.rewards.function_process import FunctionSpec
from lightrft_ray.rewards.function_source import open_function
from lightrft_ray.rewards.sample import RewardSource


async def open_source(config: ServeRewardConfig) -> tuple[RewardSource, str]:
    """What is served, ready, and its name. Raises UserError that says what is missing."""
    reward = config.reward
    if reward.kind == "function":
        function = await open_function(
            FunctionSpec(str(reward.reward_fn), reward.arguments),
            processes=reward.processes,
            call_timeout=reward.call_timeout,
            total_timeout=config.batching.batch_timeout,
        )
        return function, str(reward.reward_fn)
    # Imported here: functions are served without torch.
    from lightrft_ray.rewards.model_scoring import ThreadedSource
    from lightrft_ray.rewards.server.served_models import load_judge, load_scalar

    load = load_scalar if reward.kind == "scalar_model" else load_judge
    return ThreadedSource(load(reward)), str(reward.pretrain)
