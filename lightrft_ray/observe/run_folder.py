"""The folder of one run: where its files lie, and how a second run is kept from mixing into it."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lightrft_ray.config.errors import UserError

_CONFIG = "config.yaml"
_METRICS = "metrics.jsonl"
_SUMMARY = "summary.json"
_CURVES = "curves.png"
_REPORT = "report.html"
_EVALUATION = "evaluation.json"
_TENSORBOARD = "tensorboard"
_CHECKPOINT = "hf_checkpoint"
_SKIPPED_UPDATES = "skipped_updates"
_CHECKPOINTS = "checkpoints"
_IDENTITY = "run.json"
_TIMELINE = "timeline.jsonl"
_LOG = "log.jsonl"
_TRAJECTORIES = "trajectories"
_TRACKERS = ("wandb", "mlflow")  # offline runs, and MLflow's folder where it has no server

# Overwriting removes these and nothing else, whatever more a person keeps in the folder.
_FILES = (
    _CONFIG,
    _METRICS,
    _SUMMARY,
    _CURVES,
    _REPORT,
    _EVALUATION,
    _IDENTITY,
    _TIMELINE,
    _LOG,
)
_DIRECTORIES = (
    _TENSORBOARD,
    _CHECKPOINT,
    _CHECKPOINTS,
    _SKIPPED_UPDATES,
    _TRAJECTORIES,
    *_TRACKERS,
)


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run's files below `path`.

    The constructor touches no disk: it is the way into the folder of a run that is resumed or read.
    """

    path: Path

    @classmethod
    def create(cls, output_dir: str | Path, overwrite: bool) -> Self:
        """Make the folder of a new run.

        With `overwrite`, the files and folders that a run makes are removed first.
        Raises UserError when the folder holds a run and `overwrite` is false, when the path is a
        file, and when it cannot be made or written.
        """
        folder = cls(Path(output_dir))
        _make_writable(folder.path)
        if overwrite:
            folder._remove_run()
        elif folder.config.exists() or folder.metrics.exists():
            raise UserError(
                f"{folder.path} already holds a run: choose another --output_dir, set "
                "--overwrite_output true to replace it, or --resume auto to go on with it"
            )
        return folder

    @classmethod
    def reopen(cls, output_dir: str | Path) -> Self:
        """The folder of a run that is gone on with; made where there is none.

        Raises UserError where it is a file and where it cannot be made or written.
        """
        folder = cls(Path(output_dir))
        _make_writable(folder.path)
        return folder

    @property
    def config(self) -> Path:
        """The resolved configuration (YAML)."""
        return self.path / _CONFIG

    @property
    def metrics(self) -> Path:
        """The step records, one JSON object a line."""
        return self.path / _METRICS

    @property
    def identity(self) -> Path:
        """The run's id and when it began (JSON)."""
        return self.path / _IDENTITY

    @property
    def log(self) -> Path:
        """The driver's log, one JSON object a line."""
        return self.path / _LOG

    @property
    def timeline(self) -> Path:
        """Who was busy when, one JSON object a step."""
        return self.path / _TIMELINE

    @property
    def trajectories(self) -> Path:
        """The folder of samples, a file a step, with their images."""
        return self.path / _TRAJECTORIES

    @property
    def summary(self) -> Path:
        """The summary of the run (JSON)."""
        return self.path / _SUMMARY

    @property
    def curves(self) -> Path:
        """The plot of reward and held-out accuracy (PNG)."""
        return self.path / _CURVES

    @property
    def report(self) -> Path:
        """The run on one page: curves, settings, times, failures, ten samples (HTML)."""
        return self.path / _REPORT

    @property
    def evaluation(self) -> Path:
        """The metrics of the latest run that only evaluated (JSON)."""
        return self.path / _EVALUATION

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / _TENSORBOARD

    @property
    def checkpoint(self) -> Path:
        """The folder of the trained model in the Hugging Face format."""
        return self.path / _CHECKPOINT

    @property
    def skipped_updates(self) -> Path:
        """The folder of batches whose update was skipped; there is none if none was."""
        return self.path / _SKIPPED_UPDATES

    def _remove_run(self) -> None:
        for name in _FILES:
            (self.path / name).unlink(missing_ok=True)
        for name in _DIRECTORIES:
            directory = self.path / name
            if directory.is_symlink():
                directory.unlink()
            elif directory.exists():
                shutil.rmtree(directory)


def _make_writable(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UserError(f"output_dir {path} is a file: choose a folder with --output_dir")
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Permission bits do not tell of full, read-only or squashed file systems; a file does.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(
            f"output_dir {path} cannot be written ({error.strerror}): "
            "choose another folder with --output_dir"
        ) from error
