"""Restarts of a run that loses its workers."""

from lightrft_ray.config import RecoveryConfig
from lightrft_ray.driver.restart_budget import RestartBudget


def test_restarts_in_a_row_wait_longer_and_come_to_an_end() -> None:
    budget = RestartBudget(RecoveryConfig(max_restarts=3, restart_delay=0.5))
    assert [budget.spend() for _ in range(4)] == [0.5, 1.0, 2.0, None]


def test_the_longest_delay_is_a_minute() -> None:
    budget = RestartBudget(RecoveryConfig(max_restarts=50, restart_delay=1.0))
    assert max(budget.spend() or 0 for _ in range(50)) == 60


def test_a_further_step_renews_the_budget_and_one_done_again_does_not() -> None:
    budget = RestartBudget(RecoveryConfig(max_restarts=1))
    budget.progress(5)
    assert budget.spend() is not None
    for step in (3, 4, 5):
        budget.progress(step)
    assert budget.spend() is None
    budget.progress(6)
    assert budget.spend() is not None


def test_no_restart_where_none_is_allowed() -> None:
    assert RestartBudget(RecoveryConfig(max_restarts=0)).spend() is None
