"""Publishing weights from the learner to the generators, and checking that they arrived."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ray import ObjectRef

from lightrft_ray.config import DataFault, InfrastructureError, RunConfig, UserError
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.colocation import Colocation
from lightrft_ray.driver.transports import transport_of
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.workers.actor_group import ActorGroup, wait_for
from lightrft_ray.workers.messages import GroupTokens

_PLAIN = Sampling()  # the model's own distribution: temperature 1, nothing forbidden
_CANARY_TRIES = 20


@dataclass(frozen=True)
class Publication:
    """A finished publish: version, bytes sent, and the canary's largest log-prob difference.

    `seconds` went by until all generators had the weights and went on, which the slowest of them
    could not do for `pause_seconds`.
    """

    version: int
    nbytes: int
    canary_max_abs_diff: float
    seconds: float
    pause_seconds: float


@dataclass(frozen=True)
class _Canary:
    """The fixed prompt, and its tokens with the fixed answer as models take them."""

    prompt: Prompt
    group: GroupTokens


class WeightPublisher:
    """Publishes weight versions 0, 1, 2, … over the run's transport.

    After each one the canary, a fixed prompt with its image and a fixed answer, is scored by the
    learner and by every generator: a stale cache, a lost or misplaced weight or another rotary
    embedding shows as a difference of log-probs.
    """

    def __init__(
        self,
        config: RunConfig,
        learner: ActorGroup,
        generators: ActorGroup,
        canary_prompts: Sequence[Prompt],
        canary_answer: Sequence[int],
        *,
        colocation: Colocation,
    ) -> None:
        self._config = config
        self._learner = learner
        self._generators = generators
        self._colocation = colocation
        self._transport = transport_of(config, learner, generators)
        self._candidates = list(canary_prompts[:_CANARY_TRIES])
        self._answer = list(canary_answer)
        self._canary: _Canary | None = None
        self._version = 0

    @property
    def version(self) -> int:
        """The version that the generators have, -1 before the first."""
        return self._version - 1

    def resume_at(self, version: int) -> None:
        """Let the next publication be this version again, of a checkpoint's weights."""
        self._version = version

    def publish(self) -> Publication:
        """Send the learner's weights as the next version.

        Raises InfrastructureError where a generator refuses them or does not answer in time, and
        where the canary differs by more than `canary_max_abs_diff`.
        """
        everywhere = range(len(self._generators))
        canary = self._canary or self._choose_canary()
        self._colocation.to_publication()
        sent = self._send(everywhere, self._version)
        # What is started anew from here on catches up with this version.
        self._version += 1
        expected = self._expected(canary)
        self._colocation.to_generators()
        difference = self._difference(canary, expected, everywhere)
        return replace(sent, canary_max_abs_diff=difference)

    def catch_up(self, place: int) -> None:
        """Give one generator, which was started anew, the weights that the others have."""
        self._canary = None  # its pixels may have gone with the generator that made them
        if self._version > 0:
            with self._colocation.catching_up():
                self._send([place], self.version)
                canary = self._choose_canary()
                self._difference(canary, self._expected(canary), [place])

    def _send(self, places: Sequence[int], version: int) -> Publication:
        start = time.perf_counter()
        sent = self._transport.send(places, version)
        seconds = time.perf_counter() - start
        return Publication(version, sent.nbytes, math.nan, seconds, sent.pause_seconds)

    def _expected(self, canary: "_Canary") -> np.ndarray:
        """The canary's log-probs under the learner's weights."""
        own = self._learner.start("log_probs", [canary.group], _PLAIN)
        expected: np.ndarray = self._wait(own, "the learner (scoring the canary)")[0]
        return expected

    def _difference(self, canary: "_Canary", expected: np.ndarray, places: Sequence[int]) -> float:
        """The largest from `expected`; InfrastructureError where it is too large."""
        theirs = self._of_generators(places, "score_prompt", canary.prompt, self._answer)
        difference = max(float(np.abs(expected - log_probs).max()) for log_probs in theirs)
        self._check(difference)
        return difference

    def _of_generators(self, places: Sequence[int], method: str, *arguments: object) -> list[Any]:
        calls = [self._generators.send(place, method, *arguments) for place in places]
        return self._generators.collect(calls, self._config.sync.publish_timeout)

    def _check(self, difference: float) -> None:
        limit = self._config.sync.canary_max_abs_diff
        if not difference <= limit:
            raise InfrastructureError(
                f"after publishing weight version {self.version}, learner and generator differ "
                f"by {difference:.3g} in a log-prob of the canary prompt, over "
                f"sync.canary_max_abs_diff {limit:g}: the generator does not run the learner's "
                "weights (in bfloat16, differences of some 0.05 are normal: raise the limit)"
            )

    def _choose_canary(self) -> "_Canary":
        """The first prompt that can be encoded, one with an image where there is any."""
        reasons: list[str] = []
        for prompt in sorted(
            self._candidates, key=lambda prompt: not (prompt.images or prompt.videos)
        ):
            try:
                encoded = self._wait(
                    self._generators.start("encode_prompt", prompt, self._answer),
                    "the generators (encoding the canary)",
                )
            except DataFault as fault:
                reasons.append(str(fault))
                continue
            self._canary = _Canary(prompt, encoded[0])
            return self._canary
        raise UserError(
            f"none of the first {len(self._candidates)} prompts can be used: {'; '.join(reasons)}"
        )

    def _wait(self, references: Sequence[ObjectRef], who: str) -> list:
        timeout = self._config.sync.publish_timeout
        return wait_for(references, timeout, who, self._learner.alarm)
