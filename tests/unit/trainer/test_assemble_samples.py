"""What becomes of each sample: failed, truncated and shaped rewards, and the record."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scored_rollout import (
    ESTIMATORS,
    GROUPS,
    LENGTHS,
    assemble,
    failed_rewards,
    make_samples,
    make_scores,
    slow_centred,
    slow_group_norm,
    slow_kl,
)

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.assemble import Scores, assemble_experience


def test_one_far_off_token_is_limited() -> None:
    """log π − log π_ref beyond ±20 counts as 20, the estimate beyond ±10 as 10."""
    base = make_scores().base_action_log_probs
    assert base is not None
    base = base.clone()
    base[0, 0] = make_scores().action_log_probs[0, 0] + 50
    for estimator in ("k1", "k2", "k3"):
        experience = assemble(make_scores(base_action_log_probs=base), kl_estimator=estimator)
        assert experience.kl is not None
        assert experience.kl[0, 0].abs() == 10


@pytest.mark.parametrize("rows", [(1,), (0, 3, 6), (6, 7)], ids=str)
def test_failed_rewards_are_masked_and_not_scored_0(rows: tuple[int, ...]) -> None:
    rewards = failed_rewards(*rows)
    experience = assemble(make_scores(rewards=rewards))
    mask = make_samples().action_mask
    kept = [row for row in range(len(LENGTHS)) if row not in rows]
    assert experience.action_mask is not None
    assert not experience.action_mask[list(rows)].any()
    assert torch.equal(experience.action_mask[kept], mask[kept])
    expected = slow_group_norm(rewards.tolist())
    assert experience.advantages is not None
    torch.testing.assert_close(experience.advantages[:, 0], torch.tensor(expected))


def _rows_of_scores(scores: Scores, rows: list[int]) -> dict[str, Any]:
    return {name: value if value is None else value[rows] for name, value in vars(scores).items()}


def test_truncated_responses_are_left_out_like_failed_ones() -> None:
    is_truncated = torch.tensor([row in (0, 3) for row in range(len(LENGTHS))])
    masked = assemble(make_scores(is_truncated=is_truncated))
    failed = assemble(make_scores(rewards=failed_rewards(0, 3)))
    assert torch.equal(masked.action_mask, failed.action_mask)
    assert torch.equal(masked.advantages, failed.advantages)
    assert masked.info is not None
    assert torch.equal(masked.info["reward"], make_scores().rewards)


def test_advantages_are_made_of_shaped_rewards_and_the_record_is_not() -> None:
    scores = make_scores(shaped_rewards=make_scores().rewards * 3 + torch.arange(8.0))
    experience = assemble(scores, advantage_estimator="dr_grpo")
    assert scores.shaped_rewards is not None
    expected = slow_centred(scores.shaped_rewards.tolist())
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
    kept = [row for row in range(len(LENGTHS)) if row not in rows]
    scores = make_scores(rewards=failed_rewards(*rows))
    whole = assemble_experience(make_samples(), scores, algorithm, kl_coef=0.2)
    samples, part = make_samples(), _rows_of_scores(scores, kept)
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
    scores = make_scores(rewards=torch.full((len(LENGTHS),), math.nan))
    experience = assemble(scores, advantage_estimator=estimator)
    assert experience.action_mask is not None
    assert not experience.action_mask.any()
    assert (experience.advantages == 0).all()


def test_the_record_of_each_sample() -> None:
    scores = make_scores(rewards=failed_rewards(2))
    info = assemble(scores, kl_estimator="k2").info
    assert info is not None
    means = [sum(kl) / len(kl) for kl in slow_kl(scores, "k2")]
    means[2] = 0.0
    torch.testing.assert_close(info["kl"], torch.tensor(means))
    assert info["reward"].isnan().tolist() == [row == 2 for row in range(len(LENGTHS))]
    assert info["response_length"].tolist() == LENGTHS
    assert info["total_length"].tolist() == [length + 2 for length in LENGTHS]
    assert info["group_ids"].tolist() == GROUPS


def test_samples_and_scores_are_passed_on() -> None:
    samples, scores = make_samples(), make_scores()
    experience = assemble_experience(samples, scores, AlgorithmConfig(), kl_coef=0.0)
    assert experience.sequences is samples.sequences
    assert experience.attention_mask is samples.attention_mask
    assert experience.image_grid_thws is samples.image_grid_thws
    assert experience.pixel_values is None
    for name in ("action_log_probs", "base_action_log_probs", "values"):
        assert getattr(experience, name) is getattr(scores, name)


def test_without_a_reference_the_kl_is_0() -> None:
    experience = assemble(make_scores(base_action_log_probs=None), kl_coef=0.3, use_kl_loss=False)
    assert (experience.kl == 0).all()
    assert experience.base_action_log_probs is None
    torch.testing.assert_close(experience.advantages, assemble(make_scores()).advantages)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="gae needs a critic's values"):
        assemble(make_scores(values=None), advantage_estimator="gae")
    packed = replace(make_samples(), action_mask=None)
    with pytest.raises(ValueError, match="batched layout: action_mask is None"):
        assemble_experience(packed, make_scores(), AlgorithmConfig(), kl_coef=0.0)
