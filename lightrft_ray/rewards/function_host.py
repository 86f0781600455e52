"""The process in which a reward function runs: `python -m lightrft_ray.rewards.function_host`.

It is started and spoken to by `FunctionProcess`.
"""

import sys
from multiprocessing.connection import Connection

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.child_process import connect_to_parent
from lightrft_ray.rewards.loading import load_reward


def main(connection: Connection) -> None:
    """Load the function that comes first, then score what comes, until the other end closes."""
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


if __name__ == "__main__":
    main(connect_to_parent(*sys.argv[1:]))
