"""The reward worker: a Python function in a process of its own."""

import ray

from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.scoring import RewardInputs, Rewards
from lightrft_ray.workers.process_memory import process_tree_mb


@ray.remote
class RewardWorker:
    """Scores responses by the run's reward function."""

    def __init__(self, reward_fn: str) -> None:
        self._scorer = load_reward(reward_fn)

    def ready(self) -> None:
        """Return once the function is loaded."""

    def score(self, inputs: RewardInputs) -> Rewards:
        """Rewards, NaN where scoring failed."""
        return self._scorer.score(inputs)

    def resident_mb(self) -> float:
        """Memory of this worker, in MB."""
        return process_tree_mb()
