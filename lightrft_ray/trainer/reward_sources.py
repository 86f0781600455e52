"""Where the rewards of samples come from: a function, a file with one, or a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.functions import RewardFunction
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.scoring import RewardInputs, RewardScorer
from lightrft_ray.trainer.batch_media import model_inputs
from lightrft_ray.trainer.experience_types import SamplesVL

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
        return _by_function(load_reward(_file(remote_rm_url)))
    return None if reward_model is None else _by_model(reward_model)


def _file(remote_rm_url: Sequence[str] | str) -> str:
    addresses = [remote_rm_url] if isinstance(remote_rm_url, str) else list(remote_rm_url)
    if len(addresses) != 1 or not addresses[0].endswith(".py"):
        raise UserError(
            f"remote_rm_url {', '.join(addresses)}: reward services are not supported yet; "
            "give the path of one .py file with reward_func"
        )
    return addresses[0]


def _by_function(scorer: RewardScorer) -> RewardSource:
    def score(samples: SamplesVL) -> Tensor:
        blank = [""] * len(samples.sequences)
        rewards = scorer.score(
            RewardInputs(
                prompts=samples.prompts or blank,
                responses=samples.output_texts or blank,
                references=samples.references or blank,
                labels=samples.labels or blank,
            )
        )
        return torch.tensor(rewards.values, dtype=torch.float32)

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
