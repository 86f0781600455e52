"""What a run would take, without starting it: layout, memory of each process, and warnings.

It takes the options of launch/ppo_vl.py, and the machines to plan for. It needs no GPU and no Ray,
and loads no model. Status 1 where the run would not fit.
"""

import argparse
import sys
from collections.abc import Sequence

from lightrft_ray.config import UserError
from lightrft_ray.config.cli import exit_with_error, parse_command_line

_PROG = "launch/plan.py"


def main(argv: Sequence[str]) -> int:
    """Print the plan; returns the exit status."""
    parser = argparse.ArgumentParser(prog=_PROG, add_help=False, allow_abbrev=False)
    machines = parser.add_argument_group("machines and lengths to plan for")
    machines.add_argument("--gpus_per_node", type=_positive_int, default=8)
    machines.add_argument("--gpu_gb", type=_positive, default=80.0, help="memory of a GPU")
    machines.add_argument("--prompt_tokens", type=_positive_int, help="default: prompt_max_len")
    machines.add_argument("--response_tokens", type=_positive_int, help="default: generate_max_len")
    machines.add_argument("--image_tokens", type=_positive_int, help="default: prompt_tokens")
    if {"--help", "-h"}.intersection(argv):
        parser.print_help()
        sys.stdout.write("\n")
    options, rest = parser.parse_known_args(argv)
    config = parse_command_line(rest, _PROG, __doc__.splitlines()[0])
    # Imported here: --help and mistakes in the settings need not wait for torch.
    from lightrft_ray.driver.plan import make_plan
    from lightrft_ray.driver.plan_roles import Hardware, Lengths
    from lightrft_ray.driver.plan_text import plan_text

    hardware = Hardware(options.gpus_per_node, options.gpu_gb)
    lengths = Lengths(options.prompt_tokens, options.response_tokens, options.image_tokens)
    try:
        plan = make_plan(config, hardware, lengths)
    except UserError as error:
        exit_with_error(error)
    sys.stdout.write(plan_text(plan, hardware))
    return 1 if plan.problems else 0


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
