"""Step records on MLflow."""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.observe.names import Record

_RUN_TAG = "lightrft.run_id"
_PARAMS_AT_ONCE = 100
_LONGEST_PARAM = 500  # characters
_SERVER = "MLFLOW_TRACKING_URI"
_ALLOW_FOLDER = "MLFLOW_ALLOW_FILE_STORE"


class MlflowRun:
    """One run on MLflow, found again by the run's own id: a resumed one goes on in it.

    Raises MlflowException as the service does.
    """

    def __init__(
        self,
        settings: LoggingConfig,
        run_id: str,
        folder: Path,
        config: Mapping[str, object],
    ) -> None:
        from mlflow.tracking import MlflowClient  # here, for it takes seconds

        own = (folder / "mlflow").resolve().as_uri()
        uri = settings.mlflow_tracking_uri or os.environ.get(_SERVER) or own
        if uri.startswith("file:") or "://" not in uri:
            os.environ.setdefault(_ALLOW_FOLDER, "true")  # MLflow 3.17 refuses folders else
        self._client = MlflowClient(tracking_uri=uri)
        experiment = self._experiment(settings.mlflow_experiment)
        known = self._client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{run_id}'")
        if known:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        made = self._client.create_run(
            experiment, tags={_RUN_TAG: run_id}, run_name=folder.resolve().name
        )
        self._id = made.info.run_id
        self._log_params(config)

    def write(self, record: Record, /) -> None:
        """Log the finite numbers of a step."""
        from mlflow.entities import Metric

        now, step = int(time.time() * 1000), int(record["step"])
        metrics = [
            Metric(name, float(value), now, step)
            for name, value in record.items()
            if name != "step" and math.isfinite(value)
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        return self._client.create_experiment(name) if found is None else found.experiment_id

    def _log_params(self, config: Mapping[str, object]) -> None:
        """The settings as parameters, by dotted name."""
        from mlflow.entities import Param

        params = [Param(name, str(value)[:_LONGEST_PARAM]) for name, value in _flat(config)]
        for start in range(0, len(params), _PARAMS_AT_ONCE):
            self._client.log_batch(self._id, params=params[start : start + _PARAMS_AT_ONCE])


def _flat(config: Mapping[str, object]) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            pairs += [(f"{name}.{leaf}", inner) for leaf, inner in _flat(value)]
        else:
            pairs.append((name, value))
    return pairs
