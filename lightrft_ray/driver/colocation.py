"""Turns of learner and generators on devices that they share (`placement.colocate`).

At no time both have all of their memory: before the generators get their weights back the learner
lets go of its optimizer, and before they get their key-value cache back, of its weights. On a CPU
all of this is done, and moves nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from lightrft_ray.workers.actor_group import ActorGroup


class Colocation:
    """Whose turn it is; where nothing is shared (`is_on` false), always everybody's.

    `scorers` are reference and critic, where they share the devices, too.
    """

    def __init__(
        self,
        learner: ActorGroup,
        generators: ActorGroup,
        scorers: Sequence[ActorGroup] = (),
        *,
        is_on: bool,
    ) -> None:
        self._learner = learner
        self._generators = generators
        self._scorers = list(scorers)
        self._is_on = is_on
        # An attempt at a run may have ended with any of them away.
        self._turn: Literal["unknown", "learner", "publication", "generators"] = "unknown"

    def to_learner(self) -> None:
        """Generators, which have nothing to do, sleep; learner and scorers have their memory."""
        if self._is_on and self._turn != "learner":
            self._call_generators("sleep")
            for group in (self._learner, *self._scorers):
                group.call("return_to_device")
            self._turn = "learner"

    def to_publication(self) -> None:
        """The generators have memory for weights, and of the learner these alone are left."""
        if self._is_on:
            self.to_learner()
            self._learner.call("leave_device", True)
            for group in self._scorers:
                group.call("leave_device")
            self._call_generators("wake", ["weights"])
            self._turn = "publication"

    def to_generators(self) -> None:
        """After a publication: generators have all of their memory, and the learner has none."""
        if self._is_on and self._turn == "publication":
            self._learner.call("leave_device")
            self._call_generators("wake", ["kv_cache"])
            self._turn = "generators"

    @contextmanager
    def catching_up(self) -> Iterator[None]:
        """The learner can give out weights inside, whosever turn it is."""
        is_away = self._is_on and self._turn == "generators"
        if is_away:
            self._learner.call("return_to_device")
        yield
        if is_away:
            self._learner.call("leave_device")

    def _call_generators(self, method: str, *arguments: object) -> None:
        self._generators.collect(self._generators.send_all(method, *arguments))
