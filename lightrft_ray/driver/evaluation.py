"""Evaluation on held-out prompts: one response each, greedy unless told otherwise."""

import math
from dataclasses import dataclass

from lightrft_ray.config import RunConfig
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.rewards import start_rewards, wait_rewards
from lightrft_ray.driver.rollout import generate
from lightrft_ray.driver.seeds import prompt_seed
from lightrft_ray.driver.workers import Workers
from lightrft_ray.workers.messages import GenerationSettings, PromptTask, RolloutGroup


@dataclass(frozen=True)
class Evaluation:
    """Mean reward over the `samples` that could be generated and scored (NaN if none could).

    With a reward of 0 or 1 it is the accuracy.
    """

    accuracy: float
    samples: int


class Evaluator:
    """Evaluates the generators' current weights. Nothing of it feeds back into training."""

    def __init__(self, config: RunConfig, prompts: tuple[Prompt, ...], workers: Workers) -> None:
        self._workers = workers
        self._settings = GenerationSettings(
            n=1,
            max_tokens=config.evaluation.eval_generate_max_len or config.rollout.generate_max_len,
            temperature=config.evaluation.eval_temperature,
        )
        self._tasks = [
            PromptTask(prompt, epoch=0, seed=prompt_seed(config.seed, prompt.id, 0))
            for prompt in prompts
        ]

    @property
    def has_prompts(self) -> bool:
        """Whether there is anything to evaluate on."""
        return bool(self._tasks)

    def evaluate(self) -> Evaluation:
        """Generate and score all held-out prompts."""
        results = generate(self._workers.generator, self._tasks, self._settings)
        groups = [group for group in results if isinstance(group, RolloutGroup)]
        if not groups:
            return Evaluation(math.nan, 0)
        rewarders = self._workers.reward
        report = wait_rewards(rewarders, start_rewards(rewarders, groups))
        scored = [each.score for each in report.scores if each.score is not None]
        return Evaluation(math.fsum(scored) / len(scored) if scored else math.nan, len(scored))
