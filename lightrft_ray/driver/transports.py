"""How weights get from the learner to the generators: one small interface, two ways."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ray import ObjectRef
from ray.actor import ActorHandle

from lightrft_ray.config import RunConfig
from lightrft_ray.sync.buckets import BucketSpec
from lightrft_ray.workers.actor_group import ActorGroup, wait_for

_EXPORTING = "the learner (exporting weights)"
_SENDING = "the learner (sending weights)"


@dataclass(frozen=True)
class Sent:
    """Bytes that each generator got, and the longest time that one of them was held for it."""

    nbytes: int
    pause_seconds: float


class Transport(Protocol):
    """Gives the learner's present weights to generators, all of which have them on return."""

    def send(self, places: Sequence[int], version: int) -> Sent:
        """Give the generators of these places a version; others may get it, too.

        Raises InfrastructureError after `sync.publish_timeout`, naming who was waited for.
        """
        ...


def transport_of(config: RunConfig, learner: ActorGroup, generators: ActorGroup) -> Transport:
    """The one that `sync.transport` names."""
    if config.sync.transport == "object_store":
        return ObjectStoreTransport(config, learner, generators)
    return DeviceTransport(config, learner, generators)


class ObjectStoreTransport:
    """Rank 0 puts buckets into the object store, and generators fetch them while they sample."""

    def __init__(self, config: RunConfig, learner: ActorGroup, generators: ActorGroup) -> None:
        self._timeout = config.sync.publish_timeout
        self._learner = learner
        self._generators = generators

    def send(self, places: Sequence[int], version: int) -> Sent:
        """As `Transport.send`; a generator that died or is late is replaced.

        The new one gets the version before any work.
        """
        exporting = self._learner.start("export_weights")
        buckets: list[tuple[BucketSpec, ObjectRef]] = wait_for(
            exporting, self._timeout, _EXPORTING, self._learner.alarm
        )[0]
        loading = [
            self._generators.send(place, "update_weights", version, buckets) for place in places
        ]
        pauses: list[float] = self._generators.collect(loading, self._timeout, replace_late=True)
        return Sent(sum(spec.nbytes for spec, _ in buckets), max(pauses))


class DeviceTransport:
    """vLLM's own transports between GPUs, `nccl` and `ipc`: the learner drives the generators."""

    def __init__(self, config: RunConfig, learner: ActorGroup, generators: ActorGroup) -> None:
        self._timeout = config.sync.publish_timeout
        self._learner = learner
        self._generators = generators
        self._met: list[ActorHandle] = []

    def send(self, places: Sequence[int], version: int) -> Sent:  # noqa: ARG002
        """As `Transport.send`, to all generators: they receive together."""
        members = [*self._learner.actors, *self._generators.actors]
        if self._met != members:  # at first, and after any of them was started anew
            (address,) = self._ask([self._learner.actors[0].address.remote()])
            generators = self._generators.actors
            self._ask(self._learner.start("meet_generators", address, generators))
            self._met = members
        nbytes, pause = self._ask(self._learner.start("send_weights", version))[0]
        return Sent(nbytes, pause)

    def _ask(self, references: Sequence[ObjectRef]) -> list[Any]:
        return wait_for(references, self._timeout, _SENDING, self._learner.alarm)
