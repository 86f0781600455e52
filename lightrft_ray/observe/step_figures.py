"""The few figures of a step that progress shows, taken from its record."""

from collections import deque
from typing import NamedTuple

from lightrft_ray.observe.formatting import duration, number, seconds
from lightrft_ray.observe.names import PHASES, Record

_ETA_STEPS = 20
_SHORTEST_SHOWN_S = 0.005  # a shorter phase would read 0.00


class StepFigures(NamedTuple):
    """One step as shown: None is not measured, times in seconds, phases in the order they run.

    `accuracy` is the latest held-out accuracy, which may be some steps old.
    """

    step: int
    reward: float | None
    accuracy: float | None
    kl: float | None
    tokens_per_second: float | None
    seconds: float | None
    phases: dict[str, float]
    eta: float | None


class StepReader:
    """Turns step records into figures, remembering what one record alone does not tell."""

    def __init__(self, total_steps: int) -> None:
        self._total_steps = total_steps
        self._accuracy: float | None = None
        self._recent_seconds: deque[float] = deque(maxlen=_ETA_STEPS)

    def read(self, record: Record) -> StepFigures:
        """Return the figures of `record`; the time left goes by the mean of the latest steps."""
        step = int(record["step"])
        self._accuracy = record.get("eval/accuracy", self._accuracy)
        if step > 0 and "time/step" in record:
            self._recent_seconds.append(record["time/step"])
        return StepFigures(
            step=step,
            reward=record.get("reward/mean"),
            accuracy=self._accuracy,
            kl=record.get("kl/reference_mean"),
            tokens_per_second=record.get("speed/tokens_per_second"),
            seconds=record.get("time/step"),
            phases=_phases(record),
            eta=self._time_left(step),
        )

    def _time_left(self, step: int) -> float | None:
        if not self._recent_seconds:
            return None
        mean = sum(self._recent_seconds) / len(self._recent_seconds)
        return mean * max(self._total_steps - step, 0)


def plain_line(figures: StepFigures, total_steps: int) -> str:
    """Return one line such as "step  12/300  reward 0.412  acc 0.55  …  ETA 4m 12s"."""
    width = len(str(total_steps))
    phases = " ".join(f"{name} {seconds(time)}" for name, time in figures.phases.items())
    parts = [
        f"step {figures.step:>{width}}/{total_steps}",
        f"reward {number(figures.reward, '.3f')}",
        f"acc {number(figures.accuracy, '.2f')}",
        f"kl {number(figures.kl, '.4f')}",
        f"{number(figures.tokens_per_second, '.0f')} tok/s",
        f"{seconds(figures.seconds)} s" + (f" ({phases})" if phases else ""),
        f"ETA {duration(figures.eta)}",
    ]
    return "  ".join(parts)


def _phases(record: Record) -> dict[str, float]:
    times = {phase: record.get(f"time/{phase}", 0.0) for phase in PHASES}
    return {phase: time for phase, time in times.items() if time >= _SHORTEST_SHOWN_S}
