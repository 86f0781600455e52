"""What a generative judge is asked: plain text with named fields."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image

from lightrft_ray.config.errors import UserError

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class JudgedSample:
    """What a judge may see of a sample; images (RGB) come before the text."""

    prompt: str
    response: str
    reference: str = ""
    label: str = ""
    images: Sequence[Image.Image] = field(default=())


FIELDS = ("prompt", "response", "reference", "label")


class JudgeTemplate:
    """A prompt with fields in braces: `{prompt}`, `{response}`, `{reference}`, `{label}`.

    ``{{`` and ``}}`` are braces. What a sample puts into a field stays as it is, braces and all.
    Raises UserError for an unknown field, for a lone brace, and for a text without the response.
    """

    def __init__(self, text: str) -> None:
        for match in _FIELD.finditer(text):
            _check(match)
        if "response" not in self._fields(text):
            raise UserError("judge template: it has no {response}, so there is nothing to judge")
        self.text = text

    def render(self, sample: JudgedSample) -> str:
        """The prompt for one sample."""
        return _FIELD.sub(lambda match: _replacement(match, sample), self.text)

    @staticmethod
    def _fields(text: str) -> set[str]:
        return {match[1] for match in _FIELD.finditer(text) if match[1] is not None}


def _check(match: re.Match[str]) -> None:
    name = match[1]
    if name is None:
        if match[0] in "{}":
            raise UserError(
                f"judge template: lone {match[0]!r} at character {match.start()}; "
                f"write {match[0] * 2!r} for a brace"
            )
        return
    if name not in FIELDS:
        (nearest,) = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.0)
        raise UserError(
            f"judge template: no such field as {{{name}}}; the nearest is {{{nearest}}}, and "
            "braces are written twice"
        )


def _replacement(match: re.Match[str], sample: JudgedSample) -> str:
    return match[0][0] if match[1] is None else str(getattr(sample, match[1]))
