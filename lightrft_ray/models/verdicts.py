"""Reading a judge's verdict: strictly, so that what is no verdict is never a number."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lightrft_ray.config.errors import UserError

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_SHOWN = 80  # characters of an answer in a fault's text


@dataclass(frozen=True)
class Verdict:
    """`score` is NaN where the judge gave no verdict; `fault` then says why."""

    score: float
    fault: str | None = None


@dataclass(frozen=True)
class VerdictRule:
    """How a judge's answer becomes a score.

    `pattern` is a regular expression, matched line by line, with one group: the verdict. It must
    match, and if it matches more than once, all verdicts must be the same. With `scores` a verdict
    is one of its words (upper or lower case); else a number from `lowest` to `highest`.
    """

    pattern: str = r"^\s*verdict\s*:\s*(\S+?)\.?\s*$"
    scores: Mapping[str, float] = field(default_factory=dict)
    lowest: float = -math.inf
    highest: float = math.inf

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise UserError(f"judge verdict pattern {self.pattern!r}: {error}") from error
        if groups != 1:
            raise UserError(
                f"judge verdict pattern {self.pattern!r} has {groups} groups: one is the verdict"
            )
        if not self.lowest < self.highest:
            raise UserError(
                f"judge verdict: lowest {self.lowest:g} is not below highest {self.highest:g}"
            )

    def parse(self, answer: str) -> Verdict:
        """The verdict of a judge's whole answer."""
        matches = re.findall(self.pattern, answer, re.MULTILINE | re.IGNORECASE)
        verdicts = {match.strip().lower() for match in matches}
        if not verdicts:
            return Verdict(math.nan, f"the judge gave no verdict: {_end_of(answer)!r}")
        if len(verdicts) > 1:
            named = ", ".join(sorted(verdicts))
            return Verdict(math.nan, f"the judge gave more than one verdict: {named}")
        return self._score(verdicts.pop())

    def _score(self, verdict: str) -> Verdict:
        if self.scores:
            known = {word.lower(): score for word, score in self.scores.items()}
            if verdict in known:
                return Verdict(known[verdict])
            named = ", ".join(known)
            return Verdict(math.nan, f"the judge's verdict {verdict!r} is none of {named}")
        if not _NUMBER.fullmatch(verdict):
            return Verdict(math.nan, f"the judge's verdict {verdict!r} is no number")
        score = float(verdict)
        if not self.lowest <= score <= self.highest:
            limits = f"{self.lowest:g} to {self.highest:g}"
            return Verdict(math.nan, f"the judge's verdict {verdict} is not from {limits}")
        return Verdict(score)


def _end_of(answer: str) -> str:
    text = answer.strip()
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
