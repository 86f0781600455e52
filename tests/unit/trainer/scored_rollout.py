"""A rollout of eight samples, its experience, and slow computations of it in float64."""

import math
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.config.algorithm import Estimator
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL

LENGTHS = [4, 1, 3, 2, 4, 3, 1, 2]
GROUPS = [0, 0, 0, 2, 2, 2, 5, 5]
WIDTH = 5
GARBAGE = 1e30  # what padding holds must not matter
ESTIMATORS = get_args(Estimator)
Rows = list[list[float]]


def make_samples() -> SamplesVL:
    count = len(LENGTHS)
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(WIDTH)[None] < lengths[:, None]
    return SamplesVL(
        sequences=torch.arange(count * (WIDTH + 2)).reshape(count, WIDTH + 2),
        attention_mask=torch.ones(count, WIDTH + 2).long(),
        action_mask=mask,
        image_grid_thws=torch.tensor([[1, 4, 4]]),
        response_length=lengths,
        total_length=lengths + 2,
    )


def make_scores(**changes: Any) -> Scores:
    generator = torch.Generator().manual_seed(0)
    mask = make_samples().action_mask

    def per_action() -> Tensor:
        values = torch.randn(len(LENGTHS), WIDTH, generator=generator) / 2
        return values.where(mask, GARBAGE)

    scores = Scores(
        rewards=torch.tensor([1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.25, 0.25]),
        group_ids=torch.tensor(GROUPS),
        action_log_probs=per_action(),
        base_action_log_probs=per_action(),
        values=per_action(),
    )
    return replace(scores, **changes)


def failed_rewards(*rows: int) -> Tensor:
    rewards = make_scores().rewards.clone()
    rewards[list(rows)] = torch.tensor([math.nan, math.inf, -math.inf])[: len(rows)]
    return rewards


def assemble(scores: Scores, *, kl_coef: float = 0.0, **settings: Any) -> ExperienceVL:
    return assemble_experience(make_samples(), scores, AlgorithmConfig(**settings), kl_coef=kl_coef)


# The slow computation: one float at a time, over the actions that exist.


def rows_of(tensor: Tensor | None) -> Rows:
    assert tensor is not None
    return [row[:length] for row, length in zip(tensor.double().tolist(), LENGTHS, strict=True)]


def slow_kl(scores: Scores, estimator: str) -> Rows:
    formula = {
        "k1": lambda d: d,
        "k2": lambda d: d * d / 2,
        "k3": lambda d: math.exp(-d) - 1 + d,
    }[estimator]
    pairs = zip(
        rows_of(scores.action_log_probs), rows_of(scores.base_action_log_probs), strict=True
    )
    return [[formula(a - b) for a, b in zip(own, base, strict=True)] for own, base in pairs]


def slow_group_norm(rewards: list[float]) -> list[float]:
    """(x − mean) / (std + 1e-6) over the samples of a group that have a reward."""
    result = []
    for own_reward, own_group in zip(rewards, GROUPS, strict=True):
        group = [
            reward
            for reward, other in zip(rewards, GROUPS, strict=True)
            if other == own_group and math.isfinite(reward)
        ]
        mean = sum(group) / max(len(group), 1)
        square = sum((reward - mean) ** 2 for reward in group)
        std = math.sqrt(square / (len(group) - 1)) if len(group) > 1 else 0.0
        result.append((own_reward - mean) / (std + 1e-6) if math.isfinite(own_reward) else 0.0)
    return result


def assert_rows(got: Tensor | None, expected: Rows) -> None:
    """Equal at the actions, exactly 0 behind them."""
    assert got is not None
    assert got.dtype == torch.float32
    padded = [row + [0.0] * (WIDTH - len(row)) for row in expected]
    torch.testing.assert_close(got, torch.tensor(padded), rtol=1e-5, atol=1e-5)
    assert (got[~make_samples().action_mask] == 0).all()


def slow_centred(totals: list[float], others_only: bool = False) -> list[float]:
    """x − mean of the group, or of its other samples."""
    result = []
    for row, (own, group) in enumerate(zip(totals, GROUPS, strict=True)):
        members = [
            total
            for other, (total, other_group) in enumerate(zip(totals, GROUPS, strict=True))
            if other_group == group and not (others_only and other == row)
        ]
        result.append(own - sum(members) / len(members))
    return result
