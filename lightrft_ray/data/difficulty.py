"""Prompts by how often the policy solves them: those in between are taken most often."""

from __future__ import annotations

import hashlib
import math
from typing import TypedDict

_UNKNOWN = 0.5  # as often taken as can be


class PassRateState(TypedDict):
    """What a checkpoint must keep; one number for each prompt seen."""

    pass_rates: dict[str, float]
    passed_over: int


class PassRates:
    """Running pass rates p of prompts, by which a prompt takes its turn or is passed over.

    A prompt is taken with the chance floor + (1 − floor) · 4p(1 − p): p(1 − p) is the variance of
    its rewards, the learnability of 2502.12272, which bounds what a policy gains from it
    (2504.03380). A prompt not seen yet is always taken.
    """

    def __init__(self, seed: int, *, floor: float, memory: float) -> None:
        """`memory` in [0, 1) is what earlier visits weigh against the latest one."""
        self._seed = seed
        self._floor = floor
        self._memory = memory
        self._rates: dict[str, float] = {}
        self.passed_over = 0
        """Turns that were not taken."""

    def takes(self, name: str, epoch: int) -> bool:
        """Whether a prompt takes its turn in an epoch: a draw by seed, epoch and name alone."""
        rate = self._rates.get(name, _UNKNOWN)
        is_taken = self._draw(name, epoch) < self._floor + (1 - self._floor) * 4 * rate * (1 - rate)
        self.passed_over += not is_taken
        return is_taken

    def update(self, name: str, pass_rate: float) -> None:
        """Take in the share of a prompt's samples that were correct."""
        before = self._rates.get(name)
        if before is not None:
            pass_rate = self._memory * before + (1 - self._memory) * pass_rate
        self._rates[name] = pass_rate

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        rates = self._rates.values()
        mean = math.fsum(rates) / len(rates) if rates else math.nan
        return {"data/passed_over": self.passed_over, "data/pass_rate_mean": mean}

    def state_dict(self) -> PassRateState:
        """What a checkpoint must keep."""
        return {"pass_rates": dict(self._rates), "passed_over": self.passed_over}

    def load_state_dict(self, state: PassRateState) -> None:
        """Go on exactly where `state` was taken."""
        self._rates = dict(state["pass_rates"])
        self.passed_over = state["passed_over"]

    def _draw(self, name: str, epoch: int) -> float:
        """In [0, 1)."""
        key = f"{self._seed}/{epoch}/{name}/turn".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "big") / 2**48
