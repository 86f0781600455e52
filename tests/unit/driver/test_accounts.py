"""Accounts of prompts and rewards, and what rewards are given for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import rollout_group, sample

from lightrft_ray.config import UserError
from lightrft_ray.driver.rewards import RewardAccount
from lightrft_ray.driver.rollout import PromptAccount, pass_rates
from lightrft_ray.observe.names import METRICS


@given(counts=st.lists(st.integers(0, 1000), min_size=5, max_size=5))
def test_every_prompt_that_was_taken_is_somewhere(counts: list[int]) -> None:
    trained, filtered, failed, cancelled, under_way = counts
    account = PromptAccount(sum(counts), trained, filtered, failed, cancelled)
    assert account.in_flight == under_way
    assert account.as_record() == {
        "data/taken": sum(counts),
        "data/trained": trained,
        "data/filtered": filtered,
        "data/failed": failed,
        "data/cancelled": cancelled,
        "data/in_flight": under_way,
    }


def test_every_count_is_explained() -> None:
    assert set(PromptAccount().as_record()) <= set(METRICS)


def _errors(count: int, faults: dict[int, str]) -> list[str | None]:
    return [faults.get(index) for index in range(count)]


def test_failed_rewards_are_counted_over_the_whole_run() -> None:
    account = RewardAccount()
    account.add(_errors(10, {}), 0.1)
    account.add(_errors(10, {0: "a", 7: "b"}), 0.1)
    assert (account.scored, account.failed, account.reasons) == (20, 2, ["a", "b"])


def test_too_many_failed_rewards_end_the_run_with_the_first_reasons_and_the_last() -> None:
    account = RewardAccount()
    account.add(_errors(20, {3: "first", 4: "second"}), 0.1)
    with pytest.raises(UserError) as caught:
        account.add(_errors(4, {0: "third", 1: "fourth"}), 0.1)
    assert str(caught.value) == (
        "4 of 24 samples got no reward, more than the share 0.1 that reward.max_failed_fraction "
        "allows (first; second; third; last: fourth)"
    )


def test_a_share_of_0_allows_no_failure_and_of_1_all() -> None:
    with pytest.raises(UserError, match=r"1 of 5 samples"):
        RewardAccount().add(_errors(5, {2: "why"}), 0.0)
    RewardAccount().add(_errors(2, {0: "why", 1: "why"}), 1.0)


def test_a_prompts_pass_rate_is_of_the_samples_with_a_reward() -> None:
    groups = [
        rollout_group(name, [1], [sample([index]) for index in range(count)])
        for name, count in (("a", 3), ("b", 2), ("c", 1))
    ]
    rewards = torch.tensor([1.0, 0.4, math.nan, math.nan, math.nan, 0.5])
    assert pass_rates(groups, rewards, 0.5) == [("a", 0.5), ("c", 1.0)]
    assert pass_rates(groups, rewards, 0.75) == [("a", 0.5), ("c", 0.0)]
