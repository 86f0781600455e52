"""Publishing weights from the learner to the generators, and checking that they arrived."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ray import ObjectRef

from lightrft_ray.config import DataFault, InfrastructureError, RunConfig, UserError
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.sync.buckets import BucketSpec
from lightrft_ray.workers.actor_group import ActorGroup, wait_for

_PLAIN = Sampling()  # the model's own distribution: temperature 1, nothing forbidden
_CANARY_TRIES = 20


@dataclass(frozen=True)
class Publication:
    """A finished publish: version, bytes sent, and the canary's largest log-prob difference."""

    version: int
    nbytes: int
    canary_max_abs_diff: float


class WeightPublisher:
    """Publishes weight versions 0, 1, 2, … over the object store.

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
    ) -> None:
        self._config = config
        self._learner = learner
        self._generators = generators
        self._candidates = list(canary_prompts[:_CANARY_TRIES])
        self._answer = list(canary_answer)
        self._canary: Prompt | None = None
        self._version = 0

    def publish(self) -> Publication:
        """Send the learner's weights as the next version.

        Raises InfrastructureError where a generator refuses them or does not answer in time, and
        where the canary differs by more than `canary_max_abs_diff`.
        """
        buckets: list[tuple[BucketSpec, ObjectRef]] = self._wait(
            self._learner.start("export_weights"), "the learner (exporting weights)"
        )[0]
        self._wait(
            self._generators.start("update_weights", self._version, buckets),
            f"the generators (loading weight version {self._version})",
        )
        difference = self._compare_canary()
        limit = self._config.sync.canary_max_abs_diff
        if not difference <= limit:
            raise InfrastructureError(
                f"after publishing weight version {self._version}, learner and generator differ "
                f"by {difference:.3g} in a log-prob of the canary prompt, over "
                f"sync.canary_max_abs_diff {limit:g}: the generator does not run the learner's "
                "weights (in bfloat16, differences of some 0.05 are normal: raise the limit)"
            )
        publication = Publication(
            self._version, sum(spec.nbytes for spec, _ in buckets), difference
        )
        self._version += 1
        return publication

    def _compare_canary(self) -> float:
        prompt = self._choose_canary()
        answers = self._wait(
            self._generators.start("score_prompt", prompt, self._answer),
            "the generators (scoring the canary)",
        )
        group = answers[0][0]
        own = self._wait(
            self._learner.start("log_probs", [group], _PLAIN), "the learner (scoring the canary)"
        )[0]
        return max(float(np.abs(own - theirs).max()) for _, theirs in answers)

    def _choose_canary(self) -> Prompt:
        """The first prompt that can be encoded, one with an image where there is any."""
        if self._canary is not None:
            return self._canary
        reasons = []
        for prompt in sorted(self._candidates, key=lambda prompt: not prompt.images):
            try:
                self._wait(
                    [self._generators.actors[0].score_prompt.remote(prompt, self._answer)],
                    "the generator (scoring the canary)",
                )
            except DataFault as fault:
                reasons.append(str(fault))
                continue
            self._canary = prompt
            return prompt
        raise UserError(
            f"none of the first {len(self._candidates)} prompts can be used: {'; '.join(reasons)}"
        )

    def _wait(self, references: Sequence[ObjectRef], who: str) -> list:
        return wait_for(references, self._config.sync.publish_timeout, who)
