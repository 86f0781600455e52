"""What every recipe for the embedded digits task learns in 60 steps, over several seeds.

Runs each `launch/configs/*_digits.yaml` as a user would, one after the other, in folders that are
removed afterwards. The last line is a JSON object: recipe -> the gain of held-out
accuracy, `gain_mean` and `gain_min` over the seeds.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.run import run

_CONFIGS = Path(__file__).parents[1] / "launch" / "configs"


def recipes() -> dict[str, Path]:
    """Name -> file of all recipes for the digits task."""
    return {
        path.stem.removesuffix("_digits"): path for path in sorted(_CONFIGS.glob("*_digits.yaml"))
    }


def main() -> None:
    """Run what the command line asks for and print the gains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs of each recipe")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--recipes", nargs="+", choices=[*recipes()], default=[*recipes()])
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name in options.recipes:
        gains = [_gain(name, seed, options.steps) for seed in range(1, options.seeds + 1)]
        results[name] = _figures(gains)
        print(name, results[name], flush=True)
    print(json.dumps(results))


def _gain(name: str, seed: int, steps: int) -> float:
    """Held-out accuracy after the run less that before it."""
    with tempfile.TemporaryDirectory() as folder:
        _, summary = run(_configuration(name, seed, steps, folder))
    before, after = summary["eval_accuracy_before"], summary["eval_accuracy_after"]
    if before is None or after is None:
        raise RuntimeError(f"{name} was not evaluated")
    return after - before


def _configuration(name: str, seed: int, steps: int, folder: str) -> RunConfig:
    options = {
        "seed": seed,
        "num_steps": steps,
        "output_dir": f"{folder}/run",
        "eval_steps": 0,
        "progress": "off",
        "use_tensorboard": "false",
    }
    return load_config(recipes()[name], [(key, str(value)) for key, value in options.items()])


def _figures(gains: Sequence[float]) -> dict[str, float]:
    return {"gain_mean": statistics.fmean(gains), "gain_min": min(gains)}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
