"""What the entry points of training share: from the command line to the exit status."""

import sys
from collections.abc import Callable, Sequence

from lightrft_ray.config import InfrastructureError, RunConfig, UserError
from lightrft_ray.config.cli import exit_with_error
from lightrft_ray.config.secrets import redact

_WHERE_LOGS_ARE = "the workers' own logs are in /tmp/ray/session_latest/logs of their machine"
_INTERRUPTED = 130  # the shell's status for a program ended by Ctrl-C


def train_or_evaluate(config: RunConfig, checks: Sequence[Callable[[RunConfig], None]] = ()) -> int:
    """Run, and print what it leaves or why it ended; returns the exit status.

    `checks` are the entry point's own; they raise UserError. A mistake of the user's ends the
    program with status 2.
    """
    # Imported here: --help and mistakes in the settings need not wait for torch and Ray.
    from lightrft_ray.driver.evaluation_run import evaluate
    from lightrft_ray.driver.report import print_evaluation, print_report
    from lightrft_ray.driver.run import run

    try:
        for check in checks:
            check(config)
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
