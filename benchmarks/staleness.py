"""What samples of older weights cost: the demo with generation ahead by each `--staleness`.

Runs `launch/configs/digits_grpo.yaml` once for each, one after the other, with the default
correction (`old_log_probs: learner`) where generation is ahead; `--runs` has the folders of such
runs instead, in the same order. Draws reward and held-out accuracy of all into `--png`. The last
line is a JSON object: by staleness the accuracies by step, and `accuracy_lost`, by how much the
last accuracy of a run is below that of the first run, at most.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lightrft_ray.config.load import load_config
from lightrft_ray.driver.run import run
from lightrft_ray.observe.metrics_log import read_metrics
from lightrft_ray.observe.plots import moving_mean

_CONFIG = Path(__file__).parents[1] / "launch" / "configs" / "digits_grpo.yaml"
_WINDOW = 17  # steps
Curve = dict[int, float]


def main() -> None:
    """Run or read what the command line asks for, draw it and print the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--png", type=Path, default=Path("staleness.png"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folders = options.runs or [
            _train(staleness, options.steps, f"{folder}/{staleness}")
            for staleness in options.staleness
        ]
        records = [read_metrics(each / "metrics.jsonl") for each in folders]
    accuracies = [_curve(each, "eval/accuracy") for each in records]
    rewards = [_curve(each, "reward/mean") for each in records]
    _draw(options.staleness, rewards, accuracies, options.png)
    last = [curve[max(curve)] for curve in accuracies]
    by_staleness = dict(zip(map(str, options.staleness), accuracies, strict=True))
    print(json.dumps({"accuracy": by_staleness, "accuracy_lost": last[0] - min(last)}))


def _train(staleness: int, steps: int, folder: str) -> Path:
    options: dict[str, object] = {"num_steps": steps, "eval_steps": 20, "output_dir": folder}
    if staleness:
        options |= {"max_staleness": staleness, "old_log_probs": "learner"}
    output, _ = run(load_config(_CONFIG, [(key, str(value)) for key, value in options.items()]))
    return output.path


def _curve(records: Sequence[dict[str, float]], name: str) -> Curve:
    values = {int(record["step"]): record.get(name, math.nan) for record in records}
    return {step: value for step, value in values.items() if math.isfinite(value)}


def _draw(
    staleness: Sequence[int], rewards: Sequence[Curve], accuracies: Sequence[Curve], png: Path
) -> None:
    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, reward, accuracy in zip(staleness, rewards, accuracies, strict=True):
        name = f"max_staleness {k}"
        left.plot(list(reward), moving_mean(list(reward.values()), _WINDOW), label=name)
        right.plot(list(accuracy), list(accuracy.values()), "o-", ms=4, label=name)
    left.set_ylabel(f"training reward, mean over {_WINDOW} steps")
    right.set_ylabel("held-out accuracy (greedy)")
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(png)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
