"""The letter that a response chooses is the reference's."""

import re

from lightrft_ray.rewards.ready_made.answers import tagged

_LETTER = r"\(?([A-Z])\)?"
_AT_START = re.compile(rf"{_LETTER}(?:[.:)\s]|$)")
_ANNOUNCED = re.compile(rf"\banswer(?:\s+is)?\s*:?\s*\**{_LETTER}(?![\w'])", re.IGNORECASE)
_ALONE = re.compile(rf"{_LETTER}[.:)]?")


def multiple_choice(response: str, reference: str) -> float:
    """1 where the response chooses the reference's letter, else 0.

    The choice is the letter at the start of the ``<answer>`` tag's text (``B``, ``(B)``, ``B.
    Paris``), or else the last letter that "answer is" or "answer:" announces, or else a response
    that is a letter alone. A response without any of these chooses nothing.
    """
    right = _chosen(reference)
    return float(right is not None and _chosen(response) == right)


def _chosen(text: str) -> str | None:
    content = tagged(text)
    if content is not None:
        return _letter(_AT_START.match(content))
    announced = [letter for letter in _ANNOUNCED.findall(text) if letter.isupper()]
    return announced[-1] if announced else _letter(_ALONE.fullmatch(text.strip()))


def _letter(found: re.Match[str] | None) -> str | None:
    return None if found is None else found.group(1)
