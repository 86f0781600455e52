"""Demonstrations: prompts with the responses that a supervised loss teaches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.prompts import Prompt, PromptKeys, read_prompts


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the token ids (L,) int64 of its response, the end of the turn included."""

    prompt: Prompt
    response_ids: np.ndarray


def read_demonstrations(
    path: Path,
    keys: PromptKeys,
    image_root: Path | None,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_tokens: int,
    max_bad_fraction: float,
) -> tuple[list[Demonstration], int]:
    """The demonstrations of a JSONL file in file order, and how many rows could not be used.

    `keys.reference` names the column of the response. A row whose response is empty, or has more
    than `max_tokens` tokens with the end of the turn, cannot be used. Raises UserError as
    `read_prompts` does.
    """
    prompts, bad = read_prompts(path, keys, image_root, max_bad_fraction)
    read = [Demonstration(prompt, _response_ids(prompt, tokenizer)) for prompt in prompts]
    usable = [each for each in read if 1 < len(each.response_ids) <= max_tokens]
    total, unusable = len(read) + len(bad), len(read) - len(usable) + len(bad)
    if not usable or unusable > max_bad_fraction * total:
        raise UserError(
            f"{path}: {unusable} of {total} rows cannot be used, more than the share "
            f"{max_bad_fraction:g} that data.max_bad_fraction allows: the column "
            f"{keys.reference!r} must hold a response of at most rollout.generate_max_len "
            f"{max_tokens} tokens with the end of the turn ({_lengths(read)})"
        )
    return usable, unusable


def _response_ids(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    tokens = tokenizer(prompt.reference, add_special_tokens=False)["input_ids"]
    return np.array([*tokens, tokenizer.eos_token_id], dtype=np.int64)


def _lengths(demonstrations: Sequence[Demonstration]) -> str:
    lengths = [len(each.response_ids) for each in demonstrations]
    return f"they have {min(lengths)} to {max(lengths)}"
