"""Whether a worker may be given work: a state machine over heartbeats, deaths and restarts."""

from enum import Enum

from lightrft_ray.config import RecoveryConfig


class State(Enum):
    """What is known of a worker.

    HEALTHY answers. SUSPECT has missed heartbeats and still counts as working. DEAD is gone or has
    been silent for too long. RESTARTING is being started, STALE is up without the current weights.
    """

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DEAD = "dead"
    RESTARTING = "restarting"
    STALE = "stale"


_MAY_FOLLOW = {
    State.HEALTHY: {State.SUSPECT, State.DEAD},
    State.SUSPECT: {State.HEALTHY, State.DEAD},
    State.DEAD: {State.RESTARTING},
    State.RESTARTING: {State.STALE, State.DEAD},
    State.STALE: {State.HEALTHY, State.DEAD},
}


class Health:
    """The state of one worker. Times are seconds of any clock that only goes forward."""

    def __init__(self, settings: RecoveryConfig, now: float) -> None:
        self._settings = settings
        self._last_beat = now
        self.state = State.HEALTHY

    @property
    def can_serve(self) -> bool:
        """Whether it may be given work: never before it holds the current weights."""
        return self.state in (State.HEALTHY, State.SUSPECT)

    def beat(self, now: float) -> None:
        """It has answered a heartbeat. Late answers of one that is dead change nothing."""
        if self.can_serve:
            self._last_beat = now
            self.state = State.HEALTHY

    def check(self, now: float) -> State:
        """The state after so long a silence."""
        if self.can_serve:
            silence = now - self._last_beat
            if silence >= self._settings.heartbeat_timeout:
                self._enter(State.DEAD)
            elif silence >= self._settings.heartbeat_timeout / 2:
                self.state = State.SUSPECT
        return self.state

    def died(self) -> None:
        """Its process is gone; no news for one that was dead already."""
        if self.state is not State.DEAD:
            self._enter(State.DEAD)

    def restart(self) -> None:
        """A new process is being started."""
        self._enter(State.RESTARTING)

    def started(self) -> None:
        """The new process is up, with whatever weights it was started with."""
        self._enter(State.STALE)

    def caught_up(self, now: float) -> None:
        """It holds the current weights."""
        self._enter(State.HEALTHY)
        self._last_beat = now

    def _enter(self, state: State) -> None:
        """Raises ValueError for what cannot follow the present state."""
        if state not in _MAY_FOLLOW[self.state]:
            raise ValueError(f"a worker that is {self.state.value} cannot be {state.value} next")
        self.state = state
