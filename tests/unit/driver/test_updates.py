"""Which updates a step makes, and of what."""

import numpy as np
import pytest
import torch

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.updates import Updater
from lightrft_ray.driver.workers import Workers
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import GroupTokens


def _group(role: str) -> ActorGroup:
    return ActorGroup(role, [], timeout=1.0)


def _updater(*, has_critic: bool, **trainer: int) -> Updater:
    config = RunConfig.model_validate(
        {
            "algorithm": {"advantage_estimator": "gae" if has_critic else "group_norm"},
            "rollout": {"rollout_batch_size": 4, "n_samples_per_prompt": 2},
            "trainer": {"train_batch_size": 4, "micro_train_batch_size": 2, **trainer},
        }
    )
    critic = _group("critic") if has_critic else None
    groups = {role: _group(role) for role in ("learner", "generator", "reward")}
    return Updater(config, Workers(**groups, reference=None, critic=critic))


@pytest.mark.parametrize(
    ("has_critic", "warmup", "step", "expected"),
    [
        (False, 0, 1, ["policy"]),
        (True, 0, 1, ["value", "policy"]),
        (True, 2, 1, ["value"]),
        (True, 2, 2, ["value"]),
        (True, 2, 3, ["value", "policy"]),
    ],
)
def test_who_learns_in_a_step(
    has_critic: bool, warmup: int, step: int, expected: list[str]
) -> None:
    updater = _updater(has_critic=has_critic, critic_warmup_steps=warmup)
    assert [role for role, _ in updater._trained(step)] == expected


def test_only_the_first_update_of_a_step_sees_the_policy_that_sampled() -> None:
    """Eight samples are two updates, and two epochs four."""
    groups = [GroupTokens(np.arange(3), (np.array([1]), np.array([2])), None)] * 4
    experience = ExperienceVL(torch.zeros(8, 4), action_mask=torch.ones(8, 1).bool())
    updater = _updater(has_critic=False, max_epochs=2)
    shares = updater._passes(groups, experience, ranks=2, kl_coef=0.1)
    for share in shares:
        assert [batch.is_first for batch in share] == [True, False, False, False]
        assert {batch.denominators.horizon for batch in share} == {8}
        assert {batch.kl_coef for batch in share} == {0.1}
