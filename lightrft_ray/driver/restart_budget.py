"""How often, and after how long, a run that loses its workers starts them again."""

from lightrft_ray.config import RecoveryConfig

_LONGEST_DELAY = 60.0  # s


class RestartBudget:
    """Restarts in a row are limited, each after twice the delay; progress renews the budget."""

    def __init__(self, settings: RecoveryConfig) -> None:
        self._settings = settings
        self._furthest = -1
        self._in_row = 0
        self.restarts = 0
        """Restarts since the start."""

    def progress(self, step: int) -> None:
        """Note a finished step; one that was never reached before renews the budget."""
        if step > self._furthest:
            self._furthest = step
            self._in_row = 0

    def spend(self) -> float | None:
        """Seconds to wait before a restart, None where there is none left."""
        if self._in_row == self._settings.max_restarts:
            return None
        self._in_row += 1
        self.restarts += 1
        delay = self._settings.restart_delay * 2.0 ** (self._in_row - 1)
        return min(delay, _LONGEST_DELAY)
