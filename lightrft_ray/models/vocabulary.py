"""Whether a tokenizer and a model speak the same vocabulary."""

from __future__ import annotations

from collections.abc import Iterable

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from lightrft_ray.config.errors import UserError


def check_vocabulary(
    name: str,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    used_ids: Iterable[int] = (),
) -> None:
    """Raise UserError, which names the model, for tokens that the model has no row for.

    Counted are the tokenizer's own vocabulary, its stop and padding tokens and `used_ids`. Other
    added tokens may lie outside, as the image token of text-only Gemma 3 does.
    """
    rows = int(config.get_text_config().vocab_size)
    special = [tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.vocab_size - 1, *used_ids]
    highest = max(each for each in special if isinstance(each, int))
    if highest >= rows:
        token = tokenizer.convert_ids_to_tokens(highest)
        raise UserError(
            f"{name}: its tokenizer gives {token!r} the id {highest}, and the model has ids up to "
            f"{rows - 1}; give the tokenizer that the model was trained with, or resize the "
            f"model's embeddings to {highest + 1} or more"
        )
