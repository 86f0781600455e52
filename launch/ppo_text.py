"""Reinforcement fine-tuning of a language model by PPO or GRPO, on prompts of text alone.

Without arguments it runs the embedded default: a tiny Qwen2.5 learns sums and differences on a
CPU (`launch/configs/arithmetic_text.yaml`). `--config FILE` and dotted options change that. All
else is as in launch/ppo_vl.py.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from lightrft_ray.config import RunConfig
from lightrft_ray.config.cli import parse_command_line
from lightrft_ray.driver.entry_point import train_or_evaluate

_DEFAULT = Path(__file__).with_name("configs") / "arithmetic_text.yaml"


def main(argv: Sequence[str]) -> int:
    """Run by the command line; returns the exit status."""
    description = " ".join(__doc__.split())
    config = parse_command_line(argv, "launch/ppo_text.py", description, default=_DEFAULT)
    return train_or_evaluate(config, [_check_model])


def _check_model(config: RunConfig) -> None:
    # Imported here: --help and mistakes in the settings need not wait for transformers.
    from lightrft_ray.driver.model_checks import check_blind
    from lightrft_ray.driver.preflight import resolve_checkpoints

    check_blind(resolve_checkpoints(config))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
