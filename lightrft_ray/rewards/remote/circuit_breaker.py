"""A circuit breaker: a server that fails again and again is left alone for a while.

A pure state machine; whoever uses it brings the time. Closed, requests go through. `failures` in a
row open it, and none go through for `reset` seconds. Then it is half open: one request goes through
as a probe, whose outcome closes it or opens it anew.
"""

from enum import Enum


class BreakerState(Enum):
    """Whether requests go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class CircuitBreaker:
    """The state of one server; times are seconds of any clock that does not go back."""

    def __init__(self, failures: int, reset: float) -> None:
        self._limit = failures
        self._reset = reset
        self._failed_in_row = 0
        self._opened_at: float | None = None
        self._is_probing = False

    def state(self, now: float) -> BreakerState:
        """The state at a time."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._opened_at + self._reset else BreakerState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Whether a request may start."""
        state = self.state(now)
        return state is BreakerState.CLOSED or (
            state is BreakerState.HALF_OPEN and not self._is_probing
        )

    def probes_at(self) -> float | None:
        """When the next probe may start; None while closed or while a probe is on its way."""
        if self._opened_at is None or self._is_probing:
            return None
        return self._opened_at + self._reset

    def start(self, now: float) -> None:
        """A request starts, and one of the methods below will be called for it.

        Raises ValueError if it is not allowed.
        """
        if not self.allows(now):
            raise ValueError("a request starts though the circuit is open")
        self._is_probing = self.state(now) is BreakerState.HALF_OPEN

    def succeed(self) -> None:
        """A request was answered: the server is well, whenever the request was sent."""
        self._failed_in_row = 0
        self._opened_at = None
        self._is_probing = False

    def fail(self, now: float) -> None:
        """A request failed. While the circuit is open, that of an earlier one changes nothing."""
        self._failed_in_row += 1
        if self.state(now) is BreakerState.HALF_OPEN or (
            self._opened_at is None and self._failed_in_row >= self._limit
        ):
            self._open(now)

    def trip(self, now: float) -> None:
        """The server refused: open at once."""
        self._open(now)

    def abandon(self) -> None:
        """A request ended without a verdict on the server, as one does that was cancelled."""
        self._is_probing = False

    def _open(self, now: float) -> None:
        self._opened_at = now
        self._is_probing = False
