"""The README's commands and snippets, for the tests that run them."""

import re
import shlex
import subprocess
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", ".venv/bin/python")
_IN_TEXT = re.compile(
    r"`((?:make|pip|ray|ssh|export|\.venv/bin/[\w-]+) [^`]+|benchmarks/\w+\.py[^`]*)`"
)


def blocks(language: str) -> list[str]:
    """Blocks of a language that are not marked as runnable as they are."""
    return [text for name, text in _BLOCK.findall(README) if name == language]


def commands() -> list[tuple[str, ...]]:
    """The words of each command of the blocks of shell; of Python's, those behind it."""
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [words for line in lines for words in _commands_of(shlex.split(line, comments=True))]


def commands_in_text() -> list[tuple[str, ...]]:
    """The same of the commands in sentences and tables."""
    text = _BLOCK.sub("", README)
    return [tuple(shlex.split(" ".join(found.split()))) for found in _IN_TEXT.findall(text)]


def documented(command: str) -> list[str]:
    """The words of a command that the README has, to be run by the test that asks for it."""
    words = tuple(shlex.split(command))
    assert words in commands(), f"the README has no such command: {command}"
    return list(words)


def demo() -> list[str]:
    """The words behind Python of what `make demo` runs."""
    shown = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(shown.stdout.replace("\\\n", " "))
    return words[words.index("launch/ppo_vl.py") :]


def _commands_of(words: list[str]) -> list[tuple[str, ...]]:
    parts = [tuple(part) for is_and, part in groupby(words, "&&".__eq__) if not is_and]
    return [part[1:] if part[0] in _PYTHON else part for part in parts]
