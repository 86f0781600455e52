"""The response thinks first and answers then."""

import re

_THINK_THEN_ANSWER = re.compile(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def response_format(response: str) -> float:
    """1 where the response is ``<think>…</think><answer>…</answer>``, else 0.

    Each tag stands there once, and nothing but white space around and between. A prompt that shows
    the format earns nothing: only the response is looked at.
    """
    has_each_once = all(response.count(tag) == 1 for tag in _TAGS)
    return float(has_each_once and _THINK_THEN_ANSWER.fullmatch(response) is not None)
