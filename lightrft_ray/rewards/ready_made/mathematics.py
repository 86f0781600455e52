"""The mathematical value of a response is the reference's, by math-verify."""

import importlib
import logging
import re
from functools import cache, lru_cache
from types import ModuleType

from lightrft_ray.rewards.ready_made.answer_tag import answer_tag

_ANSWER_TAGS = re.compile(r"</?answer>")

# math-verify's own clock is an alarm signal, which only a main thread can have. These functions run
# in processes that are ended at their deadline, so that they need no other.
_NO_CLOCK = None


def boxed_math(response: str, reference: str) -> float:
    r"""1 where the response's answer equals the reference, a LaTeX expression, else 0.

    The answer is the last ``\boxed{…}``, or all of them as a set, and without any what math-verify
    finds: a formula or the last number. The reference may stand in ``$…$`` or ``\boxed{…}``, or
    alone.
    """
    plain = _ANSWER_TAGS.sub("", reference).strip()
    is_delimited = "\\boxed" in plain or (plain.startswith("$") and plain.endswith("$"))
    right = plain if is_delimited else f"${plain}$"
    last_box = response.rfind("\\boxed")
    if last_box > 0 and _equal(right, response[last_box:]):
        return 1.0
    return _equal(right, response)


def math_verify(response: str, reference: str) -> float:
    """1 where math-verify reads the same value from both texts as they stand, else 0.

    It reads LaTeX where it is delimited and else the last number, so that the plain-text reference
    ``4π cm`` is 4: for LaTeX references, `boxed_math` is stricter.
    """
    return _equal(_ANSWER_TAGS.sub("", reference).strip(), response)


def math_or_answer_tag(response: str, reference: str) -> float:
    """1 where `math_verify` gives 1 or the answer tag's text is the reference's to the letter."""
    if math_verify(response, reference):
        return 1.0
    return answer_tag(response, reference, ignore_case=False)


def _equal(reference: str, response: str) -> float:
    library = _library()
    gold, given = list(_parsed(reference)), list(_parsed(response))
    return float(library.verify(gold, given, timeout_seconds=_NO_CLOCK))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[object, ...]:
    """What math-verify takes for the text's answer, in its several readings."""
    return tuple(_library().parse(text, parsing_timeout=_NO_CLOCK))


@cache
def _library() -> ModuleType:
    """math-verify, imported late, as sympy takes a second; without its warning of no clock."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return importlib.import_module("math_verify")
