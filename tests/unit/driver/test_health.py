"""The state machine of a worker's health."""

import pytest

from lightrft_ray.config import RecoveryConfig
from lightrft_ray.driver.health import Health, State

SETTINGS = RecoveryConfig(heartbeat_timeout=10.0)


def _health() -> Health:
    return Health(SETTINGS, now=100.0)


@pytest.mark.parametrize(
    ("silence", "state"),
    [
        (0.0, State.HEALTHY),
        (4.9, State.HEALTHY),
        (5.0, State.SUSPECT),
        (9.9, State.SUSPECT),
        (10.0, State.DEAD),
    ],
)
def test_silence_makes_suspect_and_then_dead(silence: float, state: State) -> None:
    health = _health()
    assert health.check(100.0 + silence) is state
    assert health.can_serve is (state is not State.DEAD)


def test_an_answer_clears_a_suspicion_and_wakes_no_dead() -> None:
    health = _health()
    assert health.check(106.0) is State.SUSPECT
    health.beat(107.0)
    assert health.check(111.0) is State.HEALTHY
    assert health.check(117.0) is State.DEAD
    health.beat(118.0)
    assert health.check(118.0) is State.DEAD


def test_a_restarted_worker_serves_only_with_the_current_weights() -> None:
    health = _health()
    health.died()
    served = []
    for step in (health.restart, health.started, lambda: health.caught_up(200.0)):
        step()
        health.beat(199.0)  # of a process that is up but has no weights yet
        served.append((health.state, health.can_serve))
    assert served == [
        (State.RESTARTING, False),
        (State.STALE, False),
        (State.HEALTHY, True),
    ]
    assert health.check(203.0) is State.HEALTHY  # the silence before does not count


def test_silence_does_not_count_while_it_restarts() -> None:
    health = _health()
    health.died()
    health.restart()
    assert health.check(1000.0) is State.RESTARTING
    health.died()
    assert health.state is State.DEAD


def test_a_death_is_noted_once() -> None:
    health = _health()
    health.check(110.0)
    health.died()
    assert health.state is State.DEAD


@pytest.mark.parametrize("skipped", ["restart", "started"])
def test_no_stage_is_left_out(skipped: str) -> None:
    health = _health()
    health.died()
    stages = {"restart": health.restart, "started": health.started}
    del stages[skipped]
    with pytest.raises(ValueError, match="cannot be"):
        for stage in (*stages.values(), lambda: health.caught_up(0.0)):
            stage()


def test_a_worker_that_works_is_not_restarted() -> None:
    with pytest.raises(ValueError, match="healthy cannot be restarting"):
        _health().restart()
