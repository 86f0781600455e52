"""The number that a response ends in is the reference's, as in GSM8K."""

import re

from lightrft_ray.rewards.ready_made.answers import tagged

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+"
_ALONE = re.compile(rf"\$?\s*({_NUMBER})\s*[%.]?")
_SIGN = re.compile(rf"[-+]?\$?(?:{_NUMBER})")
_MARKER = re.compile(r"####|\bA:")


def numeric_match(response: str, reference: str, *, tolerance: float = 0.0) -> float:
    """1 where both texts give the same number, else 0: `tolerance` is the largest difference.

    The number is the one that stands alone in the ``<answer>`` tag, or else the first behind the
    last ``####`` or ``A:`` (Cobbe et al. 2021, 2110.14168). A reference may be a bare number. A
    response with a tag of another content, or with neither, gives no number. Thousands separators,
    a dollar sign and a percent sign are left out.
    """
    given, right = _answer(response), _answer(reference)
    right = _alone(reference) if right is None else right
    return float(given is not None and right is not None and abs(given - right) <= tolerance)


def _answer(text: str) -> float | None:
    content = tagged(text)
    if content is not None:
        return _alone(content)
    parts = _MARKER.split(text)
    found = _SIGN.search(parts[-1]) if len(parts) > 1 else None
    return None if found is None else _as_float(found.group())


def _alone(text: str) -> float | None:
    found = _ALONE.fullmatch(text.strip())
    return None if found is None else _as_float(found.group(1))


def _as_float(text: str) -> float:
    return float(text.replace(",", "").replace("$", ""))
