"""The process in which a reward function runs: `python -m lightrft_ray.rewards.function_host`.

It is started and spoken to by `FunctionProcess`. It dies with the process that started it, even if
the function holds the interpreter at that moment.
"""

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.loading import load_reward

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Load the function that comes first, then score what comes, until the other end closes."""
    _die_with(parent)
    connection = Connection(descriptor)
    try:
        scorer = load_reward(*connection.recv())
    except UserError as error:
        connection.send(str(error))
        return
    connection.send(scorer.wants_media)
    while True:
        try:
            inputs = connection.recv()
        except EOFError:
            return
        connection.send(scorer.score(inputs))


def _die_with(parent: int) -> None:
    """Have the kernel end this process when the thread that started it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            sys.exit()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
