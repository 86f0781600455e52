"""The reward that a server's settings name."""

import asyncio
from collections.abc import Sequence

from lightrft_ray.config.serve_reward import ServedRewardConfig
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.sample import RewardSample, RewardSource, SampleScore, failed
from lightrft_ray.rewards.scoring import RewardInputs, RewardScorer


class FunctionSource:
    """A reward function, called in a thread so that the server goes on answering."""

    def __init__(self, scorer: RewardScorer) -> None:
        self._scorer = scorer

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores by the function."""
        inputs = RewardInputs(
            prompts=[sample.prompt for sample in samples],
            responses=[sample.response for sample in samples],
            references=[sample.reference for sample in samples],
            labels=[sample.label for sample in samples],
        )
        rewards = await asyncio.to_thread(self._scorer.score, inputs)
        return [
            failed(sample.sample_id, rewards.faults[index])
            if index in rewards.faults
            else SampleScore(sample.sample_id, rewards.values[index])
            for index, sample in enumerate(samples)
        ]

    async def close(self) -> None:
        """Nothing is held."""


def open_source(config: ServedRewardConfig) -> tuple[RewardSource, str]:
    """What is served and its name. Raises UserError that says what is missing."""
    name = str(config.reward_fn)
    return FunctionSource(load_reward(name)), name
