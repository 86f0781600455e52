"""Reinforcement fine-tuning of a vision-language model by PPO or GRPO.

Without arguments it runs the embedded default: a tiny Qwen2.5-VL learns to read handwritten
digits on a CPU. `--config FILE` and dotted options (`--trainer.num_steps 5`) change that.
"""

import sys
from collections.abc import Sequence

from lightrft_ray.config import InfrastructureError, UserError
from lightrft_ray.config.cli import exit_with_error, parse_command_line
from lightrft_ray.config.secrets import redact

_WHERE_LOGS_ARE = "the workers' own logs are in /tmp/ray/session_latest/logs of their machine"
_INTERRUPTED = 130  # the shell's status for a program ended by Ctrl-C


def main(argv: Sequence[str]) -> int:
    """Run by the command line; returns the exit status."""
    config = parse_command_line(argv, "launch/ppo_vl.py", __doc__.splitlines()[0])
    # Imported here: --help and mistakes in the settings need not wait for torch and Ray.
    from lightrft_ray.driver.evaluation_run import evaluate
    from lightrft_ray.driver.report import print_evaluation, print_report
    from lightrft_ray.driver.run import run

    try:
        if config.evaluation.eval_only:
            print_evaluation(*evaluate(config))
            return 0
        folder, summary = run(config)
    except UserError as error:
        exit_with_error(error)
    except InfrastructureError as error:
        sys.stderr.write(f"error: {redact(str(error))}\n{_WHERE_LOGS_ARE}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: all processes of the run have been stopped\n")
        return _INTERRUPTED
    print_report(folder, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
