"""Demonstrations: prompts with the responses that a supervised loss teaches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.reading import ReadRules, read_source
from lightrft_ray.data.sources import open_source


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the token ids (L,) int64 of its response, the end of the turn included."""

    prompt: Prompt
    response_ids: np.ndarray


def read_demonstrations(
    name: str, rules: ReadRules, tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> tuple[list[Demonstration], int]:
    """The demonstrations of a source in its order, and how many rows could not be used.

    `rules.keys.reference` names the column of the response. A row whose response is empty, or has
    more than `max_tokens` tokens with the end of the turn, cannot be used. Raises UserError as
    `read_source` does.
    """
    source = read_source(open_source(name), rules)
    read = [Demonstration(prompt, _response_ids(prompt, tokenizer)) for prompt in source.prompts]
    usable = [each for each in read if 1 < len(each.response_ids) <= max_tokens]
    total, unusable = len(read) + len(source.bad), len(read) - len(usable) + len(source.bad)
    if not usable or unusable > rules.max_bad_fraction * total:
        raise UserError(
            f"{name}: {unusable} of {total} rows cannot be used, more than the share "
            f"{rules.max_bad_fraction:g} that data.max_bad_fraction allows: the column "
            f"{rules.keys.reference!r} must hold a response of at most rollout.generate_max_len "
            f"{max_tokens} tokens with the end of the turn ({_lengths(read)})"
        )
    return usable, unusable


def _response_ids(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    tokens = tokenizer(prompt.reference, add_special_tokens=False)["input_ids"]
    return np.array([*tokens, tokenizer.eos_token_id], dtype=np.int64)


def _lengths(demonstrations: Sequence[Demonstration]) -> str:
    lengths = [len(each.response_ids) for each in demonstrations]
    return f"they have {min(lengths)} to {max(lengths)}"
