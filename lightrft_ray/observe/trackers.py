"""Where step records go beside metrics.jsonl: which trackers a run has, and how each is opened."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.observe.background import Sink
from lightrft_ray.observe.mlflow_run import MlflowRun
from lightrft_ray.observe.names import Record
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.wandb_run import WandbRun

Tracker = Sink[Record]
OpenTracker = Callable[[], Tracker]


class TrackedRun(NamedTuple):
    """What trackers are told of a run: its id, folder and resolved configuration."""

    run_id: str
    folder: Path
    config: Mapping[str, object]


def check_trackers(settings: LoggingConfig) -> None:
    """Raise UserError for a tracker that is asked for and not installed; names the extra."""
    needed = {"use_wandb": ("wandb", "wandb"), "use_mlflow": ("mlflow", "mlflow")}
    for setting, (module, extra) in needed.items():
        if getattr(settings, setting) and find_spec(module) is None:
            raise UserError(
                f"logging.{setting} needs the package {module}, which is not installed: "
                f"pip install 'lightrft-ray[{extra}]'"
            )


def trackers(settings: LoggingConfig, run: TrackedRun) -> dict[str, OpenTracker]:
    """How to open each tracker of a run, by the name that people know it by.

    Their libraries are imported where they are opened: most runs need few of them.
    """
    opened: dict[str, OpenTracker] = {}
    if settings.use_tensorboard:
        opened["TensorBoard"] = lambda: _tensorboard(run)
    if settings.use_wandb:
        opened["Weights & Biases"] = lambda: WandbRun(settings, *run)
    if settings.use_mlflow:
        opened["MLflow"] = lambda: MlflowRun(settings, *run)
    return opened


def _tensorboard(run: TrackedRun) -> Tracker:
    from lightrft_ray.observe.tensorboard_events import TensorBoardEvents

    return TensorBoardEvents(RunFolder(run.folder).tensorboard)
