"""Reinforcement fine-tuning of a vision-language model by PPO or GRPO.

Without arguments it runs the embedded default: a tiny Qwen2.5-VL learns to read handwritten
digits on a CPU. `--config FILE` and dotted options (`--trainer.num_steps 5`) change that.
"""

import sys
from collections.abc import Sequence

from lightrft_ray.config.cli import parse_command_line
from lightrft_ray.driver.entry_point import train_or_evaluate


def main(argv: Sequence[str]) -> int:
    """Run by the command line; returns the exit status."""
    return train_or_evaluate(parse_command_line(argv, "launch/ppo_vl.py", __doc__.splitlines()[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
