"""What a person reads when a run is over."""

from collections.abc import Mapping
from pathlib import Path

from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.summary import Summary
from lightrft_ray.observe.summary_text import render_summary


def print_evaluation(file: Path, record: Mapping[str, float]) -> None:
    """The metrics of an evaluation, and the file they lie in."""
    for name, value in record.items():
        print(f"{name:<40} {value:g}")
    print(f"evaluation:  {file}")


def print_report(folder: RunFolder, summary: Summary) -> None:
    """The summary, and where the run's files lie."""
    print(render_summary(summary))
    for what, path in (
        ("report", folder.report),
        ("curves", folder.curves),
        ("metrics", folder.metrics),
        ("summary", folder.summary),
        ("TensorBoard", folder.tensorboard),
        ("checkpoint", folder.checkpoint),
    ):
        print(f"{what + ':':<12} {path}")
