"""What is remembered from batch to batch, and what is put together."""

import math
import statistics
from typing import Any

import pytest
import torch

from lightrft_ray.config import RunConfig
from lightrft_ray.trainer.assemble import Scores
from lightrft_ray.trainer.assembler import Assembler
from lightrft_ray.trainer.experience_types import SamplesVL

_MASK = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1]]).bool()
_SAMPLES = SamplesVL(
    sequences=torch.zeros(4, 3, dtype=torch.long),
    action_mask=_MASK,
    response_length=_MASK.sum(dim=1),
    total_length=_MASK.sum(dim=1) + 1,
)


def _scores() -> Scores:
    return Scores(
        rewards=torch.tensor([1.0, 0.0, 3.0, math.nan]),
        group_ids=torch.tensor([0, 0, 1, 1]),
        action_log_probs=torch.full((4, 2), -1.0),
        base_action_log_probs=torch.full((4, 2), -1.5),
        rollout_log_probs=torch.full((4, 2), -2.0),
        is_truncated=torch.tensor([False, True, False, False]),
    )


def _assembler(**tree: dict[str, Any]) -> Assembler:
    return Assembler(RunConfig.model_validate(tree))


def test_rewards_are_shaped_and_tokens_weighted() -> None:
    assembler = _assembler(
        reward={"reward_clip_range": [0.0, 2.0]},
        algorithm={"advantage_estimator": "reinforce", "old_log_probs": "learner"},
    )
    assembled = assembler.assemble(_SAMPLES, _scores())
    experience = assembled.experience
    assert experience.advantages.tolist() == [[1, 1], [0, 0], [2, 2], [0, 0]]
    assert experience.info["reward"][:3].tolist() == [1.0, 0.0, 3.0]
    weights = torch.full((4, 2), 2.0).where(experience.action_mask, 0.0)  # e is truncated at 2
    assert torch.equal(experience.info["token_weights"], weights)
    assert assembled.metrics.keys() >= {"reward_clipped", "mismatch_k1", "hit_fraction"}


@pytest.mark.parametrize("masks", [True, False])
def test_truncated_responses_are_masked_where_it_is_asked_for(masks: bool) -> None:
    experience = (
        _assembler(reward={"mask_truncated": masks}).assemble(_SAMPLES, _scores()).experience
    )
    assert experience.action_mask.any(dim=1).tolist() == [True, not masks, True, False]


@pytest.mark.parametrize(("masks", "kept"), [(True, [1.0, 3.0]), (False, [1.0, 0.0, 3.0])])
def test_masked_responses_feed_no_statistics(masks: bool, kept: list[float]) -> None:
    """The running deviation is of the rewards that are trained on."""
    assembler = _assembler(
        reward={"mask_truncated": masks, "reward_running_norm": "scale"},
        algorithm={"advantage_estimator": "reinforce"},
    )
    experience = assembler.assemble(_SAMPLES, _scores()).experience
    expected = 3.0 / statistics.stdev(kept)
    assert experience.advantages[2, 0].item() == pytest.approx(expected)


def test_the_kl_is_steered_by_what_was_trained_on() -> None:
    """k1 is 0.5 at each token: over the target, and three samples were used."""
    algorithm = {"init_kl_coef": 0.1, "kl_estimator": "k1", "kl_target": 0.1, "kl_horizon": 30.0}
    assembler = _assembler(algorithm=algorithm)
    experience = assembler.assemble(_SAMPLES, _scores()).experience
    assert assembler.kl_coef == 0.1
    assembler.steer_kl(experience)
    assert assembler.kl_coef == pytest.approx(0.1 * (1 + 0.2 * 3 / 30))
    before = assembler.kl_coef
    experience.action_mask = torch.zeros_like(_MASK)
    assembler.steer_kl(experience)
    assert assembler.kl_coef == before


def test_a_resumed_assembler_goes_on() -> None:
    tree: dict[str, Any] = {
        "algorithm": {"advantage_estimator": "dr_grpo", "init_kl_coef": 0.1, "kl_target": 0.1},
        "reward": {"reward_running_norm": "scale"},
    }
    first, resumed = _assembler(**tree), _assembler(**tree)
    first.steer_kl(first.assemble(_SAMPLES, _scores()).experience)
    resumed.load_state_dict(first.state_dict())
    assert resumed.kl_coef == first.kl_coef
    after = [each.assemble(_SAMPLES, _scores()).experience.advantages for each in (first, resumed)]
    assert torch.equal(*after)
