"""The text of single tokens, for people to look at."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_HALF_A_CHARACTER = "�"
_LONGEST_CHARACTER = 4  # tokens, of one byte each


def token_texts(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """A text for each token, special ones included; together they are the whole text.

    Where several tokens spell one character, the last of them has it and the others have "".
    """
    texts: list[str] = []
    held: list[int] = []
    for token in token_ids:
        held.append(int(token))
        text = str(tokenizer.decode(held, skip_special_tokens=False))
        if text.endswith(_HALF_A_CHARACTER) and len(held) < _LONGEST_CHARACTER:
            texts.append("")
            continue
        texts.append(text)
        held.clear()
    if held and texts:
        texts[-1] = str(tokenizer.decode(held, skip_special_tokens=False))
    return texts
