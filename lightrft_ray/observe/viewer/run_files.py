"""A run's folder as the viewer reads it: nothing in it needs to be there, whole or finished."""

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import yaml

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.viewer.jsonl import read_object
from lightrft_ray.observe.viewer.metric_columns import MetricColumns, read_columns
from lightrft_ray.observe.viewer.sample_rows import Samples, StepFile, read_samples, step_files
from lightrft_ray.observe.viewer.timeline_rows import StepSpans, TimelineRows

# Pictures and nothing else: an SVG, for one, may hold a program.
IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
}


class About(TypedDict):
    """What the page knows of a run before it asks for more; steps are those with samples.

    `age_s` is how long ago the run wrote a metric; `versions` change with the files.
    """

    name: str
    config: dict[str, str]
    summary: dict[str, object]
    started: str
    steps: list[int]
    has_timeline: bool
    age_s: float | None
    versions: dict[str, str]


class RunFiles:
    """Reads a run's files for the page, as they are at that moment."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._folder = RunFolder(path)
        self._trajectories = path / "trajectories"
        self._timeline = path / "timeline.jsonl"

    @cached_property
    def spans(self) -> TimelineRows:
        """The reader of the run's timeline."""
        return TimelineRows(self._timeline)

    def about(self) -> About:
        """The run in a few words; cheap enough to be asked every few seconds."""
        metrics = self._folder.metrics
        return About(
            name=self.name,
            config=_settings(self._folder.config),
            summary=read_object(self._folder.summary),
            started=str(read_object(self._folder.path / "run.json").get("started") or ""),
            steps=[step for step, _ in self.step_files()],
            has_timeline=self._timeline.is_file(),
            age_s=time.time() - metrics.stat().st_mtime if metrics.is_file() else None,
            versions={
                "metrics": _version(metrics),
                "summary": _version(self._folder.summary),
                "timeline": _version(self._timeline),
            },
        )

    def metrics(self) -> MetricColumns:
        """All step records, as columns."""
        return read_columns(self._folder.metrics)

    def step_files(self) -> list[StepFile]:
        """The files of samples, by step."""
        return step_files(self._trajectories)

    def samples(self, start: int, single: bool) -> Samples:
        """The samples of step `start`, or some from there on."""
        return read_samples(self.step_files(), start, single)

    def timeline(self, start: int, count: int) -> list[StepSpans]:
        """Who was busy in `count` steps from `start` on."""
        return self.spans.read(start, count)

    def image(self, name: str) -> Path | None:
        """The path of a picture below trajectories/; None for anything else, links out included."""
        root = self._trajectories.resolve()
        try:
            path = (root / name).resolve()
            inside = path.is_relative_to(root) and path.is_file()
        except (OSError, ValueError):  # too long, or with a zero byte
            return None
        return path if inside and path.suffix.lower() in IMAGE_TYPES else None


def open_runs(folders: Sequence[Path]) -> list[RunFiles]:
    """The runs in `folders`, named so that their names differ.

    Raises UserError where a folder is missing, comes twice or holds no run.
    """
    resolved = [folder.resolve() for folder in folders]
    for given, folder in zip(folders, resolved, strict=True):
        if not folder.is_dir():
            raise UserError(f"there is no folder {given}: give the output_dir of a run")
        if resolved.count(folder) > 1:
            raise UserError(f"{given} is given twice: name each run once")
        run = RunFolder(folder)
        if not (run.metrics.exists() or run.config.exists()):
            raise UserError(
                f"{given} holds neither config.yaml nor metrics.jsonl: give the output_dir of a run"
            )
    names = [folder.name for folder in resolved]
    return [
        RunFiles(folder, folder.name if names.count(folder.name) == 1 else str(folder))
        for folder in resolved
    ]


def _version(path: Path) -> str:
    if not path.is_file():
        return ""
    facts = path.stat()
    return f"{facts.st_ino}-{facts.st_size}-{facts.st_mtime_ns}"


def _settings(path: Path) -> dict[str, str]:
    """The settings of a config.yaml by their dotted names; none where it cannot be read."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, yaml.YAMLError):
        return {}
    return dict(_flat("", found)) if isinstance(found, dict) else {}


def _flat(prefix: str, value: object) -> list[tuple[str, str]]:
    if not isinstance(value, dict) or not value:
        text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
        return [(prefix, text.removesuffix("\n").removesuffix("\n..."))]
    names = [(f"{prefix}.{name}" if prefix else str(name), each) for name, each in value.items()]
    return [pair for name, each in names for pair in _flat(name, each)]
