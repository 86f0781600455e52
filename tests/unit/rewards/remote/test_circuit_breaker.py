"""The circuit breaker's states, with a clock of the test's own."""

import pytest

from lightrft_ray.rewards.remote.circuit_breaker import BreakerState, CircuitBreaker

_CLOSED, _OPEN, _HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def _fail(breaker: CircuitBreaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.start(now)
        breaker.fail(now)


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = CircuitBreaker(failures=3, reset=10)
    _fail(breaker, 0, times=2)
    breaker.start(0)
    breaker.succeed()
    _fail(breaker, 1, times=2)
    assert breaker.state(1) is _CLOSED and breaker.allows(1)
    _fail(breaker, 2)
    assert breaker.state(2) is _OPEN and not breaker.allows(2)
    with pytest.raises(ValueError, match="circuit is open"):
        breaker.start(11.9)


def test_half_open_it_lets_one_probe_through() -> None:
    breaker = CircuitBreaker(failures=1, reset=10)
    _fail(breaker, 5)
    assert breaker.probes_at() == 15
    assert breaker.state(15) is _HALF_OPEN
    breaker.start(15)
    assert not breaker.allows(15) and breaker.probes_at() is None


def test_the_probe_decides() -> None:
    for succeeds, state in ((True, _CLOSED), (False, _OPEN)):
        breaker = CircuitBreaker(failures=3, reset=10)
        _fail(breaker, 0, times=3)
        breaker.start(10)
        if succeeds:
            breaker.succeed()
        else:
            breaker.fail(11)
        assert breaker.state(12) is state
        assert breaker.probes_at() == (None if succeeds else 21)


def test_a_probe_without_verdict_makes_room_for_another() -> None:
    breaker = CircuitBreaker(failures=1, reset=10)
    _fail(breaker, 0)
    breaker.start(10)
    breaker.abandon()
    assert breaker.allows(10)


def test_failures_of_earlier_requests_do_not_keep_it_open() -> None:
    breaker = CircuitBreaker(failures=1, reset=10)
    breaker.start(0)
    breaker.start(0)
    breaker.fail(1)
    breaker.fail(9)
    assert breaker.probes_at() == 11


def test_an_answer_to_an_earlier_request_closes_it() -> None:
    breaker = CircuitBreaker(failures=1, reset=10)
    breaker.start(0)
    _fail(breaker, 0)
    breaker.succeed()
    assert breaker.state(1) is _CLOSED


def test_a_refusal_opens_it_at_once() -> None:
    breaker = CircuitBreaker(failures=5, reset=10)
    breaker.start(3)
    breaker.trip(3)
    assert breaker.state(4) is _OPEN
