"""Prompts, and reading those of one file that is small enough to be held in memory."""

from pathlib import Path

from lightrft_ray.data.layouts import DEFAULT_KEYS, PromptKeys
from lightrft_ray.data.prompt import Prompt
from lightrft_ray.data.readers.rows import BadRow
from lightrft_ray.data.reading import ReadRules, read_source
from lightrft_ray.data.sources import open_source

__all__ = ["BadRow", "Prompt", "PromptKeys", "read_prompts"]


def read_prompts(
    path: Path,
    keys: PromptKeys = DEFAULT_KEYS,
    image_root: Path | None = None,
    max_bad_fraction: float = 0.05,
) -> tuple[list[Prompt], list[BadRow]]:
    """All prompts of a file or folder in its order, and the rows that could not be used.

    As `read_source`, whose errors it raises.
    """
    rules = ReadRules(keys, image_root=image_root, max_bad_fraction=max_bad_fraction)
    read = read_source(open_source(str(path)), rules)
    return list(read.prompts), read.bad
