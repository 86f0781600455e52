"""Serve rewards over gRPC: `--config FILE` names what is served, to whom and how.

SIGTERM and Ctrl-C let requests in progress end first.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lightrft_ray.config.cli import exit_with_error
from lightrft_ray.config.errors import UserError
from lightrft_ray.config.load_serve_reward import describe_settings, load_serve_config


def main(argv: Sequence[str]) -> int:
    """Run by the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        "launch/serve_reward.py",
        description=__doc__,
        epilog=describe_settings(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, required=True, help="YAML file of the server")
    path = parser.parse_args(argv).config
    try:
        config = load_serve_config(path)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its errors are raised, and said once
        # Imported here: mistakes in the settings need not wait for what serves.
        from lightrft_ray.rewards.server.main import serve

        asyncio.run(serve(config))
    except UserError as error:
        exit_with_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
