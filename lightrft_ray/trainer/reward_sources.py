"""Where the rewards of samples come from: a function, a file with one, a service, or a model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.functions import RewardFunction
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.remote.opening import open_remote
from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.scoring import RewardInputs, RewardScorer
from lightrft_ray.trainer.batch_media import model_inputs
from lightrft_ray.trainer.experience_types import SamplesVL
from lightrft_ray.trainer.reward_inputs import reward_samples

RewardSource = Callable[[SamplesVL], Tensor]
"""Rewards (B,) float32 of batched samples; NaN where scoring a sample failed."""


def reward_source(
    reward_model: nn.Module | None,
    remote_rm_url: Sequence[str] | str | None,
    reward_fn: RewardFunction | None,
) -> RewardSource | None:
    """The one that is given, or None. Raises UserError if there are several."""
    given = {
        "reward_model": reward_model is not None,
        "remote_rm_url": bool(remote_rm_url),
        "reward_fn": reward_fn is not None,
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UserError(f"rewards come from one place, not from {' and '.join(named)}")
    if reward_fn is not None:
        return _by_function(RewardScorer(reward_fn, getattr(reward_fn, "__name__", "reward_fn")))
    if remote_rm_url:
        addresses = [remote_rm_url] if isinstance(remote_rm_url, str) else list(remote_rm_url)
        if any(address.endswith(".py") for address in addresses):
            return _by_function(load_reward(_only_file(addresses)))
        return _by_service(addresses)
    return None if reward_model is None else _by_model(reward_model)


def _only_file(addresses: Sequence[str]) -> str:
    if len(addresses) > 1:
        raise UserError(
            f"remote_rm_url {', '.join(addresses)}: give either the addresses of one service or "
            "the path of one .py file with reward_func"
        )
    return addresses[0]


def _by_function(scorer: RewardScorer) -> RewardSource:
    def score(samples: SamplesVL) -> Tensor:
        seen = reward_samples(samples, with_media=scorer.wants_media)
        inputs = RewardInputs.of(seen, with_media=scorer.wants_media)
        return torch.tensor(scorer.score(inputs).values, dtype=torch.float32)

    return score


def _by_service(addresses: Sequence[str]) -> RewardSource:
    try:
        config = RemoteRewardConfig(remote_rm_url=",".join(addresses))
    except ValidationError as error:
        raise UserError(str(error.errors()[0]["msg"])) from error

    async def ask(samples: Sequence[RewardSample]) -> list[SampleScore]:
        service = open_remote(config)
        try:
            return await service.score(samples)
        finally:
            await service.close()

    def score(samples: SamplesVL) -> Tensor:
        # In a thread, as the caller's may run an event loop of its own, in a notebook for example.
        with ThreadPoolExecutor(1) as thread:
            seen = reward_samples(samples, with_media=True)
            answers = thread.submit(asyncio.run, ask(seen)).result()
        values = [math.nan if answer.score is None else answer.score for answer in answers]
        return torch.tensor(values, dtype=torch.float32)

    return score


def _by_model(model: nn.Module) -> RewardSource:
    def score(samples: SamplesVL) -> Tensor:
        values = model(samples.sequences, samples.attention_mask, **model_inputs(samples))
        rewards = values.float().reshape(-1)
        if len(rewards) != len(samples.sequences):
            raise ValueError(
                f"reward_model gave {len(rewards)} rewards for {len(samples.sequences)} samples"
            )
        for row in (~rewards.isfinite()).nonzero().flatten().tolist():
            prompt = samples.prompts[row] if samples.prompts else f"of sample {row}"
            raise ValueError(f"reward of prompt {prompt}: reward_model gave {rewards[row].item()}")
        return rewards

    return score
