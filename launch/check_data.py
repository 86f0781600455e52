"""Look at the data of a run before it: read, decode and encode every prompt as the run would.

Takes the settings of a run, and --page FILE for the page of samples (default: check_data.html).
Prints counts, bad rows by reason, and how long prompts and how large images are. Exit status: 0
where every row can be used, 1 where the run would leave some out, 2 where it would refuse to go on.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from lightrft_ray.config import UserError
from lightrft_ray.config.cli import exit_with_error, parse_command_line

_PAGE = "--page"
_DEFAULT_PAGE = "check_data.html"


def main(argv: Sequence[str]) -> int:
    """Check by the command line; returns the exit status."""
    page, settings = _split_page(argv)
    config = parse_command_line(settings, "launch/check_data.py", " ".join(__doc__.split()))
    # Imported here: --help and mistakes in the settings need not wait for torch.
    from lightrft_ray.driver.data_check import check_data, write_page

    try:
        report = check_data(config)
        write_page(report, page)
    except UserError as error:
        exit_with_error(error)
    print("\n".join(report.lines))
    print(f"samples: {page}")
    if report.refusal is not None:
        exit_with_error(UserError(report.refusal))
    return 1 if report.bad else 0


def _split_page(argv: Sequence[str]) -> tuple[Path, list[str]]:
    """The file of --page, and all other words."""
    words = list(argv)
    page = _DEFAULT_PAGE
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == _PAGE:
            page = value if equals else "".join(words[place + 1 : place + 2])
            del words[place : place + (1 if equals else 2)]
            break
    return Path(page or _DEFAULT_PAGE), words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
