"""The answer inside a response."""

import re

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_ANSWER_ON_ONE_LINE = re.compile(r"<answer>(.*?)</answer>")


def tagged(text: str, *, one_line: bool = False) -> str | None:
    """The stripped text of the first ``<answer>`` tag; None without one.

    With `one_line`, a tag whose text holds a line break is no tag.
    """
    found = (_ANSWER_ON_ONE_LINE if one_line else _ANSWER).search(text)
    return None if found is None else found.group(1).strip()


def tagged_or_all(text: str, *, one_line: bool = False) -> str:
    """The text of the tag, or the whole text, stripped, where there is none."""
    answer = tagged(text, one_line=one_line)
    return text.strip() if answer is None else answer
