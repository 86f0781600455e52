"""Every estimator against an independent, slow computation in float64."""

import math
from collections.abc import Callable

import pytest
from scored_rollout import (
    GROUPS,
    LENGTHS,
    Rows,
    assemble,
    assert_rows,
    make_scores,
    rows_of,
    slow_centred,
    slow_group_norm,
    slow_kl,
)

from lightrft_ray.trainer.assemble import Scores


def _slow_gae(
    scores: Scores, kl: Rows, kl_coef: float, gamma: float, lambd: float
) -> tuple[Rows, Rows]:
    """Advantages as the sum of discounted errors, written out, and returns."""
    advantages, returns = [], []
    for reward, values, kls in zip(
        scores.rewards.tolist(), rows_of(scores.values), kl, strict=True
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


def _slow_whiten(rows: Rows) -> Rows:
    flat = [value for row in rows for value in row]
    mean = sum(flat) / len(flat)
    variance = sum((value - mean) ** 2 for value in flat) / (len(flat) - 1)
    return [[(value - mean) / math.sqrt(variance + 1e-8) for value in row] for row in rows]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize(("gamma", "lambd"), [(1.0, 1.0), (0.9, 0.7)])
def test_gae_with_the_kl_in_the_reward(estimator: str, gamma: float, lambd: float) -> None:
    scores = make_scores()
    experience = assemble(
        scores,
        kl_coef=0.3,
        advantage_estimator="gae",
        gamma=gamma,
        lambd=lambd,
        whiten_advantages=False,
        use_kl_loss=False,
        kl_estimator=estimator,
    )
    kl = slow_kl(scores, estimator)
    advantages, returns = _slow_gae(scores, kl, 0.3, gamma, lambd)
    assert_rows(experience.kl, kl)
    assert_rows(experience.advantages, advantages)
    assert_rows(experience.returns, returns)


def test_a_kl_in_the_loss_is_measured_and_not_taken_off_the_reward() -> None:
    scores = make_scores()
    settings = {"advantage_estimator": "gae", "whiten_advantages": False, "use_kl_loss": True}
    experience = assemble(scores, kl_coef=0.3, **settings)
    kl = slow_kl(scores, "k3")
    assert_rows(experience.kl, kl)
    assert_rows(experience.returns, _slow_gae(scores, kl, 0.0, 1.0, 1.0)[1])


def test_advantages_are_whitened_once_over_the_batch_and_returns_are_not() -> None:
    scores = make_scores()
    experience = assemble(scores, advantage_estimator="gae", gamma=0.9, lambd=0.7)
    advantages, returns = _slow_gae(scores, slow_kl(scores, "k3"), 0.0, 0.9, 0.7)
    assert_rows(experience.advantages, _slow_whiten(advantages))
    assert_rows(experience.returns, returns)


def test_group_norm() -> None:
    scores = make_scores()
    experience = assemble(scores)
    rows = slow_group_norm(scores.rewards.tolist())
    assert_rows(
        experience.advantages, [[a] * length for a, length in zip(rows, LENGTHS, strict=True)]
    )
    assert (experience.advantages[6:] == 0).all()  # a group of equal rewards
    assert experience.returns is None


def test_group_norm_takes_the_kl_of_a_response_off_its_reward() -> None:
    scores = make_scores()
    experience = assemble(scores, kl_coef=0.3, use_kl_loss=False, kl_estimator="k1")
    pairs = zip(scores.rewards.tolist(), slow_kl(scores, "k1"), strict=True)
    rows = slow_group_norm([reward - 0.3 * sum(kl) for reward, kl in pairs])
    assert_rows(
        experience.advantages, [[a] * length for a, length in zip(rows, LENGTHS, strict=True)]
    )


def test_group_norm_is_whitened_where_it_is_asked_for() -> None:
    scores = make_scores()
    rows = slow_group_norm(scores.rewards.tolist())
    spread = [[a] * length for a, length in zip(rows, LENGTHS, strict=True)]
    assert_rows(assemble(scores, whiten_advantages=True).advantages, _slow_whiten(spread))


def _slow_returns(scores: Scores, kl: Rows, kl_coef: float, gamma: float) -> Rows:
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
    scores = make_scores()
    settings = {"advantage_estimator": estimator, "gamma": gamma, "kl_estimator": "k1"}
    experience = assemble(scores, kl_coef=0.3, use_kl_loss=False, **settings)
    returns = _slow_returns(scores, slow_kl(scores, "k1"), 0.3, gamma)
    assert_rows(experience.returns, returns)
    is_whitened = estimator == "reinforce_plus_plus"
    assert_rows(experience.advantages, _slow_whiten(returns) if is_whitened else returns)


def _slow_cpgd(totals: list[float]) -> list[float]:
    spread = {g: {t for t, h in zip(totals, GROUPS, strict=True) if h == g} for g in GROUPS}
    with_signal = sum(len(values) > 1 for values in spread.values())
    weight = min(3.0, len(spread) / with_signal)
    return [weight * value for value in slow_centred(totals)]


@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
@pytest.mark.parametrize(
    ("estimator", "slow", "is_whitened"),
    [
        ("dr_grpo", slow_centred, False),
        ("rloo", lambda totals: slow_centred(totals, others_only=True), False),
        ("cpgd", _slow_cpgd, False),
        ("reinforce_baseline", slow_centred, True),
    ],
)
def test_comparison_in_the_group(
    estimator: str, slow: Callable[[list[float]], list[float]], is_whitened: bool, kl_coef: float
) -> None:
    scores = make_scores()
    experience = assemble(
        scores,
        kl_coef=kl_coef,
        advantage_estimator=estimator,
        use_kl_loss=False,
        kl_estimator="k1",
    )
    pairs = zip(scores.rewards.tolist(), slow_kl(scores, "k1"), strict=True)
    totals = slow([reward - kl_coef * sum(kl) for reward, kl in pairs])
    rows = [[total] * length for total, length in zip(totals, LENGTHS, strict=True)]
    assert_rows(experience.advantages, _slow_whiten(rows) if is_whitened else rows)
    assert experience.returns is None


def test_gae_with_a_lambda_for_the_values() -> None:
    scores = make_scores()
    experience = assemble(
        scores, advantage_estimator="gae", whiten_advantages=False, lambd=0.7, lambd_value=1.0
    )
    kl = slow_kl(scores, "k3")
    assert_rows(experience.advantages, _slow_gae(scores, kl, 0.0, 1.0, 0.7)[0])
    assert_rows(experience.returns, _slow_gae(scores, kl, 0.0, 1.0, 1.0)[1])


def test_gae_with_a_lambda_by_length() -> None:
    """λ = 1 − 1 / (α L), here 1 − 2 / L limited to [0, 1]."""
    scores = make_scores()
    experience = assemble(
        scores,
        advantage_estimator="gae",
        whiten_advantages=False,
        length_adaptive_alpha=0.5,
        lambd_value=1.0,
    )
    kl = slow_kl(scores, "k3")
    lambdas = [max(0.0, 1 - 2 / length) for length in LENGTHS]
    by_row = [_slow_gae(scores, kl, 0.0, 1.0, lambd)[0] for lambd in lambdas]
    assert_rows(experience.advantages, [rows[row] for row, rows in enumerate(by_row)])
