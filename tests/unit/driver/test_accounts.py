"""Accounts of prompts and rewards, and what rewards are given for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import rollout_group, sample

from lightrft_ray.config import UserError
from lightrft_ray.driver.rollout import PromptAccount, pass_rates
from lightrft_ray.driver.scoring import RewardAccount, _reward_inputs
from lightrft_ray.observe.names import METRICS
from lightrft_ray.rewards.scoring import RewardInputs, Rewards


@given(counts=st.lists(st.integers(0, 1000), min_size=4, max_size=4))
def test_every_prompt_that_was_taken_is_somewhere(counts: list[int]) -> None:
    trained, filtered, failed, under_way = counts
    account = PromptAccount(sum(counts), trained, filtered, failed)
    assert account.in_flight == under_way
    assert account.as_record() == {
        "data/taken": sum(counts),
        "data/trained": trained,
        "data/filtered": filtered,
        "data/failed": failed,
        "data/in_flight": under_way,
    }


def test_every_count_is_explained() -> None:
    assert set(PromptAccount().as_record()) <= set(METRICS)


def _rewards(count: int, faults: dict[int, str]) -> Rewards:
    return Rewards([math.nan if i in faults else 1.0 for i in range(count)], faults)


def test_failed_rewards_are_counted_over_the_whole_run() -> None:
    account = RewardAccount()
    account.add(_rewards(10, {}), 0.1)
    account.add(_rewards(10, {0: "a", 7: "b"}), 0.1)
    assert (account.scored, account.failed, account.reasons) == (20, 2, ["a", "b"])


def test_too_many_failed_rewards_end_the_run_with_the_first_reasons() -> None:
    account = RewardAccount()
    account.add(_rewards(20, {3: "first", 4: "second"}), 0.1)
    with pytest.raises(UserError) as caught:
        account.add(_rewards(4, {0: "third", 1: "fourth"}), 0.1)
    assert str(caught.value) == (
        "4 of 24 samples got no reward, more than the share 0.1 that reward.max_failed_fraction "
        "allows (first; second; third)"
    )


def test_a_share_of_0_allows_no_failure_and_of_1_all() -> None:
    with pytest.raises(UserError, match=r"1 of 5 samples"):
        RewardAccount().add(_rewards(5, {2: "why"}), 0.0)
    RewardAccount().add(_rewards(2, {0: "why", 1: "why"}), 1.0)


def test_reward_functions_see_each_samples_own_prompt() -> None:
    """Of the prompt the user's text alone: a format rule must not match a system prompt."""
    groups = [
        rollout_group("a", [1], [sample([1]), sample([2])]),
        rollout_group("b", [2], [sample([3])]),
    ]
    pairs = [(group, each) for group in groups for each in group.samples]
    assert _reward_inputs(pairs) == RewardInputs(
        prompts=["text of a", "text of a", "text of b"],
        responses=["text of [1]", "text of [2]", "text of [3]"],
        references=["reference of a", "reference of a", "reference of b"],
        labels=["label of a", "label of a", "label of b"],
    )


def test_a_prompts_pass_rate_is_of_the_samples_with_a_reward() -> None:
    groups = [
        rollout_group(name, [1], [sample([index]) for index in range(count)])
        for name, count in (("a", 3), ("b", 2), ("c", 1))
    ]
    rewards = torch.tensor([1.0, 0.4, math.nan, math.nan, math.nan, 0.5])
    assert pass_rates(groups, rewards, 0.5) == [("a", 0.5), ("c", 1.0)]
    assert pass_rates(groups, rewards, 0.75) == [("a", 0.5), ("c", 0.0)]
