"""The learning curves of a run: reward and held-out accuracy against the step."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.metrics_log import read_metrics

_REWARD = "#1f5fa8"
_ACCURACY = "#b5541c"
_SMOOTHING_SHARE = 0.08  # of the run's steps: enough to still the noise, too few to hide a collapse


def plot_curves(metrics_path: Path, output_png: Path) -> None:
    """Draw the curves of a metrics.jsonl, finished or not, into a PNG of 1200 x 1050 pixels.

    Raises UserError when the file is missing or holds neither rewards nor held-out accuracies.
    """
    records = read_metrics(metrics_path)
    reward = _series(records, "reward/mean")
    accuracy = _series(records, "eval/accuracy")
    if not reward[0] and not accuracy[0]:
        raise UserError(f"{metrics_path} holds no step to plot: wait for the first step")
    # A figure of its own, not pyplot's: no window system and no global state are touched.
    figure = Figure(figsize=(8, 7), dpi=150, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    _draw_reward(top, *reward)
    _draw_accuracy(bottom, *accuracy)
    bottom.set_xlabel("step")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(output_png, format="png")


def moving_mean(values: Sequence[float], window: int) -> NDArray[np.float64]:
    """Return the centred mean over `window` (odd) values, over fewer at the ends.

    values [n] -> float64 [n]: no padding, so that the ends are not drawn towards anything.
    """
    half = window // 2
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    position = np.arange(len(values))
    first, last = np.maximum(position - half, 0), np.minimum(position + half + 1, len(values))
    means: NDArray[np.float64] = (total[last] - total[first]) / (last - first)
    return means


def _series(records: list[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    known = [r for r in records if not math.isnan(r.get(name, math.nan))]
    return [r["step"] for r in known], [r[name] for r in known]


def _draw_reward(axes: Axes, steps: list[float], rewards: list[float]) -> None:
    window = 2 * round(_SMOOTHING_SHARE * len(steps) / 2) + 1
    smooth = moving_mean(rewards, window)
    axes.plot(steps, rewards, ".-", color=_REWARD, alpha=0.35, lw=1, ms=3, label="each step")
    axes.plot(steps, smooth, color=_REWARD, lw=2, label=f"centred mean, window {window}")
    if steps:
        axes.legend(frameon=False)
    _dress(axes, "training reward", bool(steps))


def _draw_accuracy(axes: Axes, steps: list[float], accuracies: list[float]) -> None:
    axes.plot(steps, accuracies, "o-", color=_ACCURACY, lw=2, ms=4)
    if steps:
        _label_point(axes, steps[-1], accuracies[-1], "left")
    if len(steps) > 1:
        _label_point(axes, steps[0], accuracies[0], "right")
    axes.margins(x=0.07)  # room for the two labels beside the curve
    axes.set_ylim(0, 1.08)
    _dress(axes, "held-out accuracy (greedy)", bool(steps))


def _label_point(axes: Axes, step: float, accuracy: float, align: Literal["left", "right"]) -> None:
    offset = (8 if align == "left" else -8, 0)
    axes.annotate(
        f"{accuracy:.2f}",
        (step, accuracy),
        xytext=offset,
        textcoords="offset points",
        ha=align,
        va="center",
        color=_ACCURACY,
    )


def _dress(axes: Axes, label: str, has_data: bool) -> None:
    axes.set_ylabel(label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if not has_data:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="gray")
