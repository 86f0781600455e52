"""The settings of recovery: what a run does when one of its processes dies."""

from pydantic import NonNegativeInt, PositiveFloat

from lightrft_ray.config.fields import Section


class RecoveryConfig(Section):
    """Restarts of workers that died."""

    max_restarts: NonNegativeInt = 5
    """Restarts in a row, without a further step finished, after which the run ends."""
    heartbeat_timeout: PositiveFloat = 60.0
    """Seconds without a sign of life after which a worker is killed and started again."""
    restart_delay: PositiveFloat = 1.0
    """Seconds before the first restart; each one in a row waits twice as long, a minute at most."""
