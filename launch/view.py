"""Show runs in a browser: serve a page on this machine, or write it as one HTML file.

The page has curves, who was busy when, samples with their tokens and pictures, and settings; of
several runs, side by side. It follows a run that is still going on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lightrft_ray.config import UserError
from lightrft_ray.config.cli import exit_with_error
from lightrft_ray.observe.viewer.embedded import Limits, static_page
from lightrft_ray.observe.viewer.run_files import RunFiles, open_runs
from lightrft_ray.observe.viewer.server import ViewerServer


def main(argv: Sequence[str]) -> int:
    """View by the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="launch/view.py", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="output_dir of a run", metavar="RUN")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write this file; serve nothing")
    options = parser.parse_args(argv)
    try:
        runs = open_runs(options.runs)
        if options.html is not None:
            write_page(runs, options.html)
        else:
            serve(runs, options.port)
    except UserError as error:
        exit_with_error(error)
    return 0


def write_page(runs: Sequence[RunFiles], file: Path) -> None:
    """Write the page of `runs`; raises UserError where `file` cannot be written."""
    page = static_page(runs, Limits(), ", ".join(run.name for run in runs))
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--html {file} cannot be written: {error.strerror}") from error
    print(f"wrote {file}")


def serve(runs: Sequence[RunFiles], port: int) -> None:
    """Serve the page of `runs` until Ctrl-C."""
    with ViewerServer(runs, port) as server:
        print(f"viewer: {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
