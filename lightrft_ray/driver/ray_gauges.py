"""Step records as gauges of Ray's own Prometheus endpoint."""

import math

from ray.util.metrics import Gauge

from lightrft_ray.observe.names import FAMILIES, METRICS, Record, documented_as
from lightrft_ray.observe.prometheus import gauge_name


class RayGauges:
    """A gauge for each name of the tables, with the run's id and the metric's own name as tags."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._gauges: dict[str, Gauge] = {}

    def write(self, record: Record, /) -> None:
        """Set the gauges to the finite numbers of a step."""
        for name, value in record.items():
            if math.isfinite(value):
                tags = {"run": self._run_id, "name": name}
                self._gauge(documented_as(name)).set(float(value), tags=tags)

    def close(self) -> None:
        """Ray forgets them with the process."""

    def _gauge(self, name: str) -> Gauge:
        if name not in self._gauges:
            meaning = (METRICS | FAMILIES)[name].meaning
            self._gauges[name] = Gauge(gauge_name(name), meaning, ("run", "name"))
        return self._gauges[name]
