"""Experience against an independent, slow computation in float64."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.config.algorithm import Estimator
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL

_LENGTHS = [4, 1, 3, 2, 4, 3, 1, 2]
_GROUPS = [0, 0, 0, 2, 2, 2, 5, 5]
_WIDTH = 5
_GARBAGE = 1e30  # what padding holds must not matter
ESTIMATORS = get_args(Estimator)
_Rows = list[list[float]]


def _samples() -> SamplesVL:
    count = len(_LENGTHS)
    lengths = torch.tensor(_LENGTHS)
    mask = torch.arange(_WIDTH)[None] < lengths[:, None]
    return SamplesVL(
        sequences=torch.arange(count * (_WIDTH + 2)).reshape(count, _WIDTH + 2),
        attention_mask=torch.ones(count, _WIDTH + 2).long(),
        action_mask=mask,
        image_grid_thws=torch.tensor([[1, 4, 4]]),
        response_length=lengths,
        total_length=lengths + 2,
    )


def _scores(**changes: Any) -> Scores:
    generator = torch.Generator().manual_seed(0)
    mask = _samples().action_mask

    def per_action() -> Tensor:
        values = torch.randn(len(_LENGTHS), _WIDTH, generator=generator) / 2
        return values.where(mask, _GARBAGE)

    scores = Scores(
        rewards=torch.tensor([1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.25, 0.25]),
        group_ids=torch.tensor(_GROUPS),
        action_log_probs=per_action(),
        base_action_log_probs=per_action(),
        values=per_action(),
    )
    return replace(scores, **changes)


def _failed(*rows: int) -> Tensor:
    rewards = _scores().rewards.clone()
    rewards[list(rows)] = torch.tensor([math.nan, math.inf, -math.inf])[: len(rows)]
    return rewards


def _assemble(scores: Scores, *, kl_coef: float = 0.0, **settings: Any) -> ExperienceVL:
    return assemble_experience(_samples(), scores, AlgorithmConfig(**settings), kl_coef=kl_coef)


# The slow computation: one float at a time, over the actions that exist.


def _rows_of(tensor: Tensor | None) -> _Rows:
    assert tensor is not None
    return [row[:length] for row, length in zip(tensor.double().tolist(), _LENGTHS, strict=True)]


def _slow_kl(scores: Scores, estimator: str) -> _Rows:
    formula = {
        "k1": lambda d: d,
        "k2": lambda d: d * d / 2,
        "k3": lambda d: math.exp(-d) - 1 + d,
    }[estimator]
    pairs = zip(
        _rows_of(scores.action_log_probs), _rows_of(scores.base_action_log_probs), strict=True
    )
    return [[formula(a - b) for a, b in zip(own, base, strict=True)] for own, base in pairs]


def _slow_gae(
    scores: Scores, kl: _Rows, kl_coef: float, gamma: float, lambd: float
) -> tuple[_Rows, _Rows]:
    """Advantages as the sum of discounted errors, written out, and returns."""
    advantages, returns = [], []
    for reward, values, kls in zip(
        scores.rewards.tolist(), _rows_of(scores.values), kl, strict=True
    ):
        steps = range(len(values))
        rewards = [-kl_coef * kls[t] + (reward if t == len(values) - 1 else 0) for t in steps]
        after = [*values[1:], 0.0]
        errors = [rewards[t] + gamma * after[t] - values[t] for t in steps]
        own = [
            sum((gamma * lambd) ** (later - t) * errors[later] for later in steps if later >= t)
            for t in steps
        ]
        advantages.append(own)
        returns.append([a + v for a, v in zip(own, values, strict=True)])
    return advantages, returns


def _slow_group_norm(rewards: list[float]) -> list[float]:
    """(x − mean) / (std + 1e-6) over the samples of a group that have a reward."""
    result = []
    for own_reward, own_group in zip(rewards, _GROUPS, strict=True):
        group = [
            reward
            for reward, other in zip(rewards, _GROUPS, strict=True)
            if other == own_group and math.isfinite(reward)
        ]
        mean = sum(group) / max(len(group), 1)
        square = sum((reward - mean) ** 2 for reward in group)
        std = math.sqrt(square / (len(group) - 1)) if len(group) > 1 else 0.0
        result.append((own_reward - mean) / (std + 1e-6) if math.isfinite(own_reward) else 0.0)
    return result


def _slow_whiten(rows: _Rows) -> _Rows:
    flat = [value for row in rows for value in row]
    mean = sum(flat) / len(flat)
    variance = sum((value - mean) ** 2 for value in flat) / (len(flat) - 1)
    return [[(value - mean) / math.sqrt(variance + 1e-8) for value in row] for row in rows]


def _assert_rows(got: Tensor | None, expected: _Rows) -> None:
    """Equal at the actions, exactly 0 behind them."""
    assert got is not None
    assert got.dtype == torch.float32
    padded = [row + [0.0] * (_WIDTH - len(row)) for row in expected]
    torch.testing.assert_close(got, torch.tensor(padded), rtol=1e-5, atol=1e-5)
    assert (got[~_samples().action_mask] == 0).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize(("gamma", "lambd"), [(1.0, 1.0), (0.9, 0.7)])
def test_gae_with_the_kl_in_the_reward(estimator: str, gamma: float, lambd: float) -> None:
    scores = _scores()
    experience = _assemble(
        scores,
        kl_coef=0.3,
        advantage_estimator="gae",
        gamma=gamma,
        lambd=lambd,
        whiten_advantages=False,
        use_kl_loss=False,
        kl_estimator=estimator,
    )
    kl = _slow_kl(scores, estimator)
    advantages, returns = _slow_gae(scores, kl, 0.3, gamma, lambd)
    _assert_rows(experience.kl, kl)
    _assert_rows(experience.advantages, advantages)
    _assert_rows(experience.returns, returns)


def test_a_kl_in_the_loss_is_measured_and_not_taken_off_the_reward() -> None:
    scores = _scores()
    settings = {"advantage_estimator": "gae", "whiten_advantages": False, "use_kl_loss": True}
    experience = _assemble(scores, kl_coef=0.3, **settings)
    kl = _slow_kl(scores, "k3")
    _assert_rows(experience.kl, kl)
    _assert_rows(experience.returns, _slow_gae(scores, kl, 0.0, 1.0, 1.0)[1])


def test_advantages_are_whitened_once_over_the_batch_and_returns_are_not() -> None:
    scores = _scores()
    experience = _assemble(scores, advantage_estimator="gae", gamma=0.9, lambd=0.7)
    advantages, returns = _slow_gae(scores, _slow_kl(scores, "k3"), 0.0, 0.9, 0.7)
    _assert_rows(experience.advantages, _slow_whiten(advantages))
    _assert_rows(experience.returns, returns)


def test_group_norm() -> None:
    scores = _scores()
    experience = _assemble(scores)
    rows = _slow_group_norm(scores.rewards.tolist())
    _assert_rows(
        experience.advantages, [[a] * length for a, length in zip(rows, _LENGTHS, strict=True)]
    )
    assert (experience.advantages[6:] == 0).all()  # a group of equal rewards
    assert experience.returns is None


def test_group_norm_takes_the_kl_of_a_response_off_its_reward() -> None:
    scores = _scores()
    experience = _assemble(scores, kl_coef=0.3, use_kl_loss=False, kl_estimator="k1")
    pairs = zip(scores.rewards.tolist(), _slow_kl(scores, "k1"), strict=True)
    rows = _slow_group_norm([reward - 0.3 * sum(kl) for reward, kl in pairs])
    _assert_rows(
        experience.advantages, [[a] * length for a, length in zip(rows, _LENGTHS, strict=True)]
    )


def test_group_norm_is_whitened_where_it_is_asked_for() -> None:
    scores = _scores()
    rows = _slow_group_norm(scores.rewards.tolist())
    spread = [[a] * length for a, length in zip(rows, _LENGTHS, strict=True)]
    _assert_rows(_assemble(scores, whiten_advantages=True).advantages, _slow_whiten(spread))


def _slow_returns(scores: Scores, kl: _Rows, kl_coef: float, gamma: float) -> _Rows:
    """Discounted sums of what follows, written out."""
    rows = []
    for reward, kls in zip(scores.rewards.tolist(), kl, strict=True):
        steps = range(len(kls))
        rewards = [-kl_coef * kls[t] + (reward if t == len(kls) - 1 else 0) for t in steps]
        rows.append([sum(gamma ** (j - t) * rewards[j] for j in steps if j >= t) for t in steps])
    return rows


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("estimator", ["reinforce", "reinforce_plus_plus"])
def test_returns_with_the_kl_in_the_reward(estimator: str, gamma: float) -> None:
    scores = _scores()
    settings = {"advantage_estimator": estimator, "gamma": gamma, "kl_estimator": "k1"}
    experience = _assemble(scores, kl_coef=0.3, use_kl_loss=False, **settings)
    returns = _slow_returns(scores, _slow_kl(scores, "k1"), 0.3, gamma)
    _assert_rows(experience.returns, returns)
    is_whitened = estimator == "reinforce_plus_plus"
    _assert_rows(experience.advantages, _slow_whiten(returns) if is_whitened else returns)


def _slow_centred(totals: list[float], others_only: bool = False) -> list[float]:
    """x − mean of the group, or of its other samples."""
    result = []
    for row, (own, group) in enumerate(zip(totals, _GROUPS, strict=True)):
        members = [
            total
            for other, (total, other_group) in enumerate(zip(totals, _GROUPS, strict=True))
            if other_group == group and not (others_only and other == row)
        ]
        result.append(own - sum(members) / len(members))
    return result


def _slow_cpgd(totals: list[float]) -> list[float]:
    spread = {g: {t for t, h in zip(totals, _GROUPS, strict=True) if h == g} for g in _GROUPS}
    with_signal = sum(len(values) > 1 for values in spread.values())
    weight = min(3.0, len(spread) / with_signal)
    return [weight * value for value in _slow_centred(totals)]


@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
@pytest.mark.parametrize(
    ("estimator", "slow", "is_whitened"),
    [
        ("dr_grpo", _slow_centred, False),
        ("rloo", lambda totals: _slow_centred(totals, others_only=True), False),
        ("cpgd", _slow_cpgd, False),
        ("reinforce_baseline", _slow_centred, True),
    ],
)
def test_comparison_in_the_group(
    estimator: str, slow: Callable[[list[float]], list[float]], is_whitened: bool, kl_coef: float
) -> None:
    scores = _scores()
    experience = _assemble(
        scores,
        kl_coef=kl_coef,
        advantage_estimator=estimator,
        use_kl_loss=False,
        kl_estimator="k1",
    )
    pairs = zip(scores.rewards.tolist(), _slow_kl(scores, "k1"), strict=True)
    totals = slow([reward - kl_coef * sum(kl) for reward, kl in pairs])
    rows = [[total] * length for total, length in zip(totals, _LENGTHS, strict=True)]
    _assert_rows(experience.advantages, _slow_whiten(rows) if is_whitened else rows)
    assert experience.returns is None


def test_gae_with_a_lambda_for_the_values() -> None:
    scores = _scores()
    experience = _assemble(
        scores, advantage_estimator="gae", whiten_advantages=False, lambd=0.7, lambd_value=1.0
    )
    kl = _slow_kl(scores, "k3")
    _assert_rows(experience.advantages, _slow_gae(scores, kl, 0.0, 1.0, 0.7)[0])
    _assert_rows(experience.returns, _slow_gae(scores, kl, 0.0, 1.0, 1.0)[1])


def test_gae_with_a_lambda_by_length() -> None:
    """λ = 1 − 1 / (α L), here 1 − 2 / L limited to [0, 1]."""
    scores = _scores()
    experience = _assemble(
        scores,
        advantage_estimator="gae",
        whiten_advantages=False,
        length_adaptive_alpha=0.5,
        lambd_value=1.0,
    )
    kl = _slow_kl(scores, "k3")
    lambdas = [max(0.0, 1 - 2 / length) for length in _LENGTHS]
    by_row = [_slow_gae(scores, kl, 0.0, 1.0, lambd)[0] for lambd in lambdas]
    _assert_rows(experience.advantages, [rows[row] for row, rows in enumerate(by_row)])


def test_one_far_off_token_is_limited() -> None:
    """log π − log π_ref beyond ±20 counts as 20, the estimate beyond ±10 as 10."""
    base = _scores().base_action_log_probs
    assert base is not None
    base = base.clone()
    base[0, 0] = _scores().action_log_probs[0, 0] + 50
    for estimator in ("k1", "k2", "k3"):
        experience = _assemble(_scores(base_action_log_probs=base), kl_estimator=estimator)
        assert experience.kl is not None
        assert experience.kl[0, 0].abs() == 10


@pytest.mark.parametrize("rows", [(1,), (0, 3, 6), (6, 7)], ids=str)
def test_failed_rewards_are_masked_and_not_scored_0(rows: tuple[int, ...]) -> None:
    rewards = _failed(*rows)
    experience = _assemble(_scores(rewards=rewards))
    mask = _samples().action_mask
    kept = [row for row in range(len(_LENGTHS)) if row not in rows]
    assert experience.action_mask is not None
    assert not experience.action_mask[list(rows)].any()
    assert torch.equal(experience.action_mask[kept], mask[kept])
    expected = _slow_group_norm(rewards.tolist())
    assert experience.advantages is not None
    torch.testing.assert_close(experience.advantages[:, 0], torch.tensor(expected))


def _rows_of_scores(scores: Scores, rows: list[int]) -> dict[str, Any]:
    return {name: value if value is None else value[rows] for name, value in vars(scores).items()}


def test_truncated_responses_are_left_out_like_failed_ones() -> None:
    is_truncated = torch.tensor([row in (0, 3) for row in range(len(_LENGTHS))])
    masked = _assemble(_scores(is_truncated=is_truncated))
    failed = _assemble(_scores(rewards=_failed(0, 3)))
    assert torch.equal(masked.action_mask, failed.action_mask)
    assert torch.equal(masked.advantages, failed.advantages)
    assert masked.info is not None
    assert torch.equal(masked.info["reward"], _scores().rewards)


def test_advantages_are_made_of_shaped_rewards_and_the_record_is_not() -> None:
    scores = _scores(shaped_rewards=_scores().rewards * 3 + torch.arange(8.0))
    experience = _assemble(scores, advantage_estimator="dr_grpo")
    assert scores.shaped_rewards is not None
    expected = _slow_centred(scores.shaped_rewards.tolist())
    torch.testing.assert_close(experience.advantages[:, 0], torch.tensor(expected))
    assert experience.info is not None
    assert torch.equal(experience.info["reward"], scores.rewards)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("use_kl_loss", [True, False])
def test_failed_samples_change_nothing_of_the_others(estimator: str, use_kl_loss: bool) -> None:
    """As if they had never been in the batch, whitening included."""
    settings = {
        "advantage_estimator": estimator,
        "use_kl_loss": use_kl_loss,
        "whiten_advantages": None if estimator.startswith("reinforce_") else True,
    }
    algorithm = AlgorithmConfig(**settings)
    rows = (0, 4, 7)
    kept = [row for row in range(len(_LENGTHS)) if row not in rows]
    scores = _scores(rewards=_failed(*rows))
    whole = assemble_experience(_samples(), scores, algorithm, kl_coef=0.2)
    samples, part = _samples(), _rows_of_scores(scores, kept)
    assert samples.action_mask is not None
    without = assemble_experience(
        replace(
            samples,
            sequences=samples.sequences[kept],
            action_mask=samples.action_mask[kept],
        ),
        Scores(**part),
        algorithm,
        kl_coef=0.2,
    )
    for name in ("advantages", "kl", "action_mask") + (("returns",) * (whole.returns is not None)):
        torch.testing.assert_close(getattr(whole, name)[kept], getattr(without, name))
        assert (getattr(whole, name)[list(rows)] == 0).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_batch_without_any_reward_has_nothing_to_learn(estimator: str) -> None:
    scores = _scores(rewards=torch.full((len(_LENGTHS),), math.nan))
    experience = _assemble(scores, advantage_estimator=estimator)
    assert experience.action_mask is not None
    assert not experience.action_mask.any()
    assert (experience.advantages == 0).all()


def test_the_record_of_each_sample() -> None:
    scores = _scores(rewards=_failed(2))
    info = _assemble(scores, kl_estimator="k2").info
    assert info is not None
    means = [sum(kl) / len(kl) for kl in _slow_kl(scores, "k2")]
    means[2] = 0.0
    torch.testing.assert_close(info["kl"], torch.tensor(means))
    assert info["reward"].isnan().tolist() == [row == 2 for row in range(len(_LENGTHS))]
    assert info["response_length"].tolist() == _LENGTHS
    assert info["total_length"].tolist() == [length + 2 for length in _LENGTHS]
    assert info["group_ids"].tolist() == _GROUPS


def test_samples_and_scores_are_passed_on() -> None:
    samples, scores = _samples(), _scores()
    experience = assemble_experience(samples, scores, AlgorithmConfig(), kl_coef=0.0)
    assert experience.sequences is samples.sequences
    assert experience.attention_mask is samples.attention_mask
    assert experience.image_grid_thws is samples.image_grid_thws
    assert experience.pixel_values is None
    for name in ("action_log_probs", "base_action_log_probs", "values"):
        assert getattr(experience, name) is getattr(scores, name)


def test_without_a_reference_the_kl_is_0() -> None:
    experience = _assemble(_scores(base_action_log_probs=None), kl_coef=0.3, use_kl_loss=False)
    assert (experience.kl == 0).all()
    assert experience.base_action_log_probs is None
    torch.testing.assert_close(experience.advantages, _assemble(_scores()).advantages)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="gae needs a critic's values"):
        _assemble(_scores(values=None), advantage_estimator="gae")
    packed = replace(_samples(), action_mask=None)
    with pytest.raises(ValueError, match="batched layout: action_mask is None"):
        assemble_experience(packed, _scores(), AlgorithmConfig(), kl_coef=0.0)
