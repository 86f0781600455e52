"""The command line of a run: a configuration file, settings over it, and `--help`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.help_text import format_help
from lightrft_ray.config.load import load_config
from lightrft_ray.config.run import RunConfig
from lightrft_ray.config.secrets import redact
from lightrft_ray.config.settings import find_setting


def parse_command_line(
    argv: Sequence[str], prog: str, description: str, *, default: Path | None = None
) -> RunConfig:
    """Configuration of a command line, without the program's name.

    `default` is the file to read where the command line names none. Prints help and exits with
    status 0 for `--help`. A mistake exits with status 2 and one line on stderr.
    """
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(format_help(prog, description))
        raise SystemExit(0)
    try:
        path, overrides = _split_arguments(argv)
        return load_config(path or default, overrides)
    except UserError as error:
        exit_with_error(error)


def exit_with_error(error: UserError) -> NoReturn:
    """End the program with status 2 and the error as one line on stderr, secrets masked."""
    sys.stderr.write(f"error: {redact(' '.join(str(error).split()))}\n")
    raise SystemExit(2) from None


def _split_arguments(argv: Sequence[str]) -> tuple[Path | None, list[tuple[str, str]]]:
    """The file of `--config` and the pairs of a setting's name and the text of its value."""
    path: Path | None = None
    overrides: list[tuple[str, str]] = []
    rest = list(argv)
    while rest:
        name, value = _take_option(rest)
        if name != "config":
            overrides.append((name, value))
        elif path is None:
            path = Path(value)
        else:
            raise UserError(f"--config comes twice, with {path} and {value}: give one file")
    return path, overrides


def _take_option(rest: list[str]) -> tuple[str, str]:
    """Take one option and its value off the front of the arguments."""
    word = rest.pop(0)
    name, equals, value = word.removeprefix("--").partition("=")
    if not word.startswith("--") or not name:
        raise UserError(f"unexpected argument {word!r}: every setting is given as --NAME VALUE")
    if equals:
        return name, value
    if rest and not rest[0].startswith("--"):
        return name, rest.pop(0)
    setting = find_setting(name)
    if setting is not None and setting.is_switch:
        return name, "true"
    if setting is not None or name == "config":
        raise UserError(f"--{name} needs a value")
    return name, ""  # an unknown name, which is the better thing to complain about
