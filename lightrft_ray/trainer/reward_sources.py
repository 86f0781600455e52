"""Where the rewards of samples come from: a function, a file with one, a service, or a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.functions import RewardFunction
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.process_scores import Decode, process_rewards
from lightrft_ray.rewards.remote.opening import open_remote
from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.scoring import RewardInputs, RewardScorer
from lightrft_ray.trainer.batch_media import model_inputs
from lightrft_ray.trainer.experience_types import SamplesVL
from lightrft_ray.trainer.reward_samples import reward_samples

_STEP_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class LocalRewards:
    """Rewards (B,) float32, NaN where scoring a sample failed.

    `process` has an entry a sample where any has rewards of tokens or steps: (L,) float32 over its
    response, NaN where there is none, or None.
    """

    values: Tensor
    process: list[np.ndarray | None] | None = None


RewardSource = Callable[[SamplesVL], LocalRewards]
"""Rewards of batched samples."""


def reward_source(
    reward_model: nn.Module | None,
    remote_rm_url: Sequence[str] | str | None,
    reward_fn: RewardFunction | None,
    decode: Decode,
) -> RewardSource | None:
    """The one that is given, or None. `decode` gives the text of token ids, to find steps in.

    Raises UserError if there are several.
    """
    given = {
        "reward_model": reward_model is not None,
        "remote_rm_url": bool(remote_rm_url),
        "reward_fn": reward_fn is not None,
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UserError(f"rewards come from one place, not from {' and '.join(named)}")
    if reward_fn is not None:
        name = getattr(reward_fn, "__name__", "reward_fn")
        return _by_function(RewardScorer(reward_fn, name), decode)
    if remote_rm_url:
        addresses = [remote_rm_url] if isinstance(remote_rm_url, str) else list(remote_rm_url)
        if len(addresses) == 1 and addresses[0].endswith(".py"):
            return _by_function(load_reward(addresses[0]), decode)
        return _by_service(addresses, decode)
    return None if reward_model is None else _by_model(reward_model)


def _by_function(scorer: RewardScorer, decode: Decode) -> RewardSource:
    def score(samples: SamplesVL) -> LocalRewards:
        given = reward_samples(samples, with_media=scorer.wants_media)
        rewards = scorer.score(RewardInputs.of(given))
        return _laid_out(given, rewards.as_scores([each.sample_id for each in given]), decode)

    return score


def _by_service(addresses: Sequence[str], decode: Decode) -> RewardSource:
    try:
        config = RemoteRewardConfig(remote_rm_url=",".join(addresses))
    except ValidationError as error:
        raise UserError(
            f"{error.errors()[0]['ctx']['error']}; or give the path of a .py file with reward_func"
        ) from error

    async def ask(samples: Sequence[RewardSample]) -> list[SampleScore]:
        source = open_remote(config)
        try:
            return await source.score(samples)
        finally:
            await source.close()

    def score(samples: SamplesVL) -> LocalRewards:
        given = reward_samples(samples, with_media=True)
        # In a thread of its own, as this one may have a running loop already: a notebook's does.
        with ThreadPoolExecutor(1) as executor:
            scores = executor.submit(asyncio.run, ask(given)).result()
        return _laid_out(given, scores, decode)

    return score


def _laid_out(
    samples: Sequence[RewardSample], scores: Sequence[SampleScore], decode: Decode
) -> LocalRewards:
    values = [torch.nan if score.score is None else score.score for score in scores]
    process: list[np.ndarray | None] = []
    for row, (sample, score) in enumerate(zip(samples, scores, strict=True)):
        try:
            own = process_rewards(score, sample.response_token_ids, decode, _STEP_SEPARATOR)
        except ValueError:  # as many scores as there are tokens or steps, or the sample failed
            own, values[row] = None, torch.nan
        process.append(own)
    has_any = any(each is not None for each in process)
    return LocalRewards(torch.tensor(values, dtype=torch.float32), process if has_any else None)


def _by_model(model: nn.Module) -> RewardSource:
    def score(samples: SamplesVL) -> LocalRewards:
        values = model(samples.sequences, samples.attention_mask, **model_inputs(samples))
        rewards = values.float().reshape(-1)
        if len(rewards) != len(samples.sequences):
            raise ValueError(
                f"reward_model gave {len(rewards)} rewards for {len(samples.sequences)} samples"
            )
        for row in (~rewards.isfinite()).nonzero().flatten().tolist():
            prompt = samples.prompts[row] if samples.prompts else f"of sample {row}"
            raise ValueError(f"reward of prompt {prompt}: reward_model gave {rewards[row].item()}")
        return LocalRewards(rewards)

    return score
