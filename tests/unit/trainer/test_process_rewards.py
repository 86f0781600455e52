"""Rewards of tokens and steps in the advantages, against sums by hand."""

import math
import statistics
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_types import SamplesVL

_LENGTHS = [4, 2, 3, 1]
_GROUPS = [0, 0, 1, 1]
_WIDTH = 5
_NAN = math.nan
_PROCESS = [
    [_NAN, 1.0, _NAN, 0.5, 7.0],  # 7 lies behind the response's end
    [0.25, -1.0, _NAN, _NAN, _NAN],
    [_NAN, _NAN, 2.0, _NAN, _NAN],
    [1.0, _NAN, _NAN, _NAN, _NAN],
]
_REWARDS = [1.0, 0.0, 0.5, 0.25]


def _samples() -> SamplesVL:
    lengths = torch.tensor(_LENGTHS)
    return SamplesVL(
        sequences=torch.zeros(4, _WIDTH + 1).long(),
        attention_mask=torch.ones(4, _WIDTH + 1).long(),  # type: ignore[arg-type]
        action_mask=torch.arange(_WIDTH)[None] < lengths[:, None],  # type: ignore[arg-type]
        response_length=lengths,
        total_length=lengths + 1,
    )


def _scores() -> Scores:
    zeros = torch.zeros(4, _WIDTH)
    return Scores(
        rewards=torch.tensor(_REWARDS),
        group_ids=torch.tensor(_GROUPS),
        action_log_probs=zeros,
        values=torch.linspace(-1, 1, 4 * _WIDTH).reshape(4, _WIDTH),
        process_rewards=torch.tensor(_PROCESS),
    )


def _advantages(scores: Scores, **settings: object) -> Tensor:
    algorithm = AlgorithmConfig(**settings)  # type: ignore[arg-type]
    experience = assemble_experience(_samples(), scores, algorithm, kl_coef=0.0)
    assert experience.advantages is not None
    return experience.advantages


def _process(row: int) -> list[float]:
    """The process rewards of a response's tokens, 0 where there is none."""
    return [0.0 if math.isnan(p) else p for p in _PROCESS[row][: _LENGTHS[row]]]


def _to_go(values: list[float], factor: float) -> list[float]:
    return [sum(v * factor**k for k, v in enumerate(values[t:])) for t in range(len(values))]


def _padded(rows: list[list[float]]) -> Tensor:
    return torch.tensor([row + [0.0] * (_WIDTH - len(row)) for row in rows])


def _token_returns(gamma: float) -> list[list[float]]:
    rows = []
    for row, reward in enumerate(_REWARDS):
        rewards = _process(row)
        rewards[-1] += reward
        rows.append(_to_go(rewards, gamma))
    return rows


def _whitened(rows: list[list[float]]) -> list[list[float]]:
    flat = [value for row in rows for value in row]
    mean, deviation = statistics.fmean(flat), statistics.stdev(flat)
    return [[(value - mean) / deviation for value in row] for row in rows]


def test_returns_hold_outcome_and_process() -> None:
    advantages = _advantages(_scores(), advantage_estimator="reinforce", gamma=0.9)
    torch.testing.assert_close(advantages, _padded(_token_returns(0.9)))


def test_gae_is_linear_in_the_rewards_of_tokens() -> None:
    settings = {"advantage_estimator": "gae", "gamma": 0.9, "lambd": 0.5}
    settings["whiten_advantages"] = False
    with_process = _advantages(_scores(), **settings)
    without = _advantages(replace(_scores(), process_rewards=None), **settings)
    expected = _padded([_to_go(_process(row), 0.45) for row in range(4)])
    torch.testing.assert_close(with_process - without, expected)


def _compared(row: int, kind: str, values: dict[int, list[float]]) -> dict[float, float]:
    """Of a group's values, what each becomes by comparison with all others."""
    group = values[_GROUPS[row]]
    mean = statistics.fmean(group)
    spread = sum(len(set(each)) > 1 for each in values.values())
    scale = {
        "group_norm": lambda: 1 / (statistics.stdev(group) + 1e-6) if len(group) > 1 else 0.0,
        "dr_grpo": lambda: 1.0,
        "rloo": lambda: len(group) / max(len(group) - 1, 1),
        "cpgd": lambda: min(3.0, len(values) / spread),
        "reinforce_baseline": lambda: 1.0,
    }[kind]()
    return {value: (value - mean) * scale for value in group}


def _by_comparison(kind: str) -> list[list[float]]:
    outcomes = {
        g: [r for r, own in zip(_REWARDS, _GROUPS, strict=True) if own == g] for g in (0, 1)
    }
    steps: dict[int, list[float]] = {0: [], 1: []}
    for row, group in enumerate(_GROUPS):
        steps[group] += [p for p in _PROCESS[row][: _LENGTHS[row]] if not math.isnan(p)]
    rows = []
    for row, reward in enumerate(_REWARDS):
        of_outcome = _compared(row, kind, outcomes)[reward]
        of_step = _compared(row, kind, steps)
        own = _PROCESS[row][: _LENGTHS[row]]
        to_go = _to_go([0.0 if math.isnan(p) else of_step[p] for p in own], 1.0)
        rows.append([of_outcome + value for value in to_go])
    return rows


@pytest.mark.parametrize("kind", ["group_norm", "dr_grpo", "rloo", "cpgd", "reinforce_baseline"])
def test_steps_are_compared_with_those_of_their_group(kind: str) -> None:
    expected = _by_comparison(kind)
    if kind == "reinforce_baseline":
        expected = _whitened(expected)
    torch.testing.assert_close(_advantages(_scores(), advantage_estimator=kind), _padded(expected))


def test_reinforce_plus_plus_whitens_returns_of_both() -> None:
    advantages = _advantages(_scores(), advantage_estimator="reinforce_plus_plus", gamma=1.0)
    torch.testing.assert_close(advantages, _padded(_whitened(_token_returns(1.0))))


@pytest.mark.parametrize("kind", ["reinforce", "group_norm", "reinforce_baseline", "gae"])
def test_without_any_process_reward_nothing_changes(kind: str) -> None:
    none = replace(_scores(), process_rewards=torch.full((4, _WIDTH), _NAN))
    plain = replace(_scores(), process_rewards=None)
    one, other = (_advantages(s, advantage_estimator=kind) for s in (none, plain))
    torch.testing.assert_close(one, other, atol=0, rtol=0)


def test_a_sample_that_failed_has_no_process_rewards_either() -> None:
    failed = replace(_scores(), rewards=torch.tensor([_NAN, 0.0, 0.5, 0.25]))
    advantages = _advantages(failed, advantage_estimator="dr_grpo")
    assert advantages[0].eq(0).all()
    # The other sample of its group has only its own steps to be compared with.
    mean = (0.25 - 1.0) / 2
    torch.testing.assert_close(advantages[1, :2], torch.tensor([0.0, -1.0 - mean]))
