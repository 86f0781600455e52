"""The actors of one role, and waits on them that end."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from lightrft_ray.config.errors import (
    DataFault,
    InfrastructureError,
    InputsLost,
    NoAnswer,
    UserError,
    WorkerDied,
)

Alarm = Callable[[], None]
"""Raises WorkerDied where a worker is lost without which no wait makes sense."""

_ALARM_EVERY = 0.1  # s


def wait_for(
    references: Sequence[ObjectRef], timeout: float, who: str, alarm: Alarm | None = None
) -> list[Any]:
    """The results, in order; `alarm` is called again and again meanwhile.

    Raises NoAnswer that names `who` after `timeout` seconds, WorkerDied when its process
    is gone; a UserError or DataFault of the worker is raised as such.
    """
    try:
        return _get(references, timeout, alarm)
    except GetTimeoutError as error:
        raise NoAnswer(f"{who} did not answer within {timeout:g} s") from error
    except (RayActorError, WorkerCrashedError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise WorkerDied(f"{who} died: {reason}") from error
    except RayTaskError as error:
        if isinstance(error.cause, UserError | DataFault | InfrastructureError):
            raise error.cause from None
        if isinstance(error.cause, ObjectLostError):
            raise InputsLost(
                f"{who} found its inputs gone with the worker that made them"
            ) from error
        raise InfrastructureError(f"{who} failed:\n{error}") from error


def _get(references: Sequence[ObjectRef], timeout: float, alarm: Alarm | None) -> list[Any]:
    """`ray.get` that looks for results as they come, so that the first error ends it."""
    deadline = time.monotonic() + timeout
    results: dict[ObjectRef, Any] = {}
    pending = list(dict.fromkeys(references))
    while pending:
        if alarm is not None:
            alarm()
        left = max(deadline - time.monotonic(), 0.0)
        slice_ = left if alarm is None else min(left, _ALARM_EVERY)
        # Where it lies does not matter yet: a slice is too short for a large result to be fetched.
        done, pending = ray.wait(pending, timeout=slice_, fetch_local=False)
        if not done and left == 0.0:
            raise GetTimeoutError
        for reference in done:
            results[reference] = ray.get(reference, timeout=max(left, _ALARM_EVERY))
    return [results[reference] for reference in references]


def _has_come(reference: ObjectRef) -> bool:
    """Whether a result is there, and no error."""
    try:
        ray.get(reference, timeout=0)
    except (GetTimeoutError, RayActorError, RayTaskError):
        return False
    return True


@dataclass(frozen=True)
class Call:
    """A call that can be made again: whom it went to, what it asks, and its result to come."""

    place: int
    actor: ActorHandle
    method: str
    arguments: tuple[object, ...]
    reference: ObjectRef


class ActorGroup:
    """The actors of one role, in the order of their ranks.

    `spawn` makes the actor of a place anew. `revive`, where it is set, has an actor that died
    replaced by one that can do the same work: then `collect` sends it what the other left undone.
    `alarm`, where it is set, can end each wait on the group; `meanwhile` is what the waiting one
    does again and again, and must be short.
    """

    def __init__(
        self,
        role: str,
        actors: Sequence[ActorHandle],
        timeout: float,
        spawn: Callable[[int], ActorHandle] | None = None,
    ) -> None:
        self.role = role
        self.actors = list(actors)
        self.timeout = timeout
        self.revive: Callable[[int], None] | None = None
        self.alarm: Alarm | None = None
        self.meanwhile: Callable[[], None] | None = None
        self._spawn = spawn

    def __len__(self) -> int:
        return len(self.actors)

    def start(self, method: str, *arguments: object) -> list[ObjectRef]:
        """Call a method with the same arguments on every actor."""
        return [getattr(actor, method).remote(*arguments) for actor in self.actors]

    def start_each(self, method: str, arguments: Sequence[object]) -> list[ObjectRef]:
        """Call a method on every actor with an argument of its own."""
        pairs = zip(self.actors, arguments, strict=True)
        return [getattr(actor, method).remote(argument) for actor, argument in pairs]

    def start_split(self, method: str) -> list[tuple[ObjectRef, ...]]:
        """Call a method of several results on every actor; a reference to each of them."""
        return [tuple(getattr(actor, method).remote()) for actor in self.actors]

    def wait(self, references: Sequence[ObjectRef]) -> list[Any]:
        """Results of calls to this group, within its deadline."""
        return self._wait_for(references, self.timeout, f"the {self.role} worker")

    def send(self, place: int, method: str, *arguments: object) -> Call:
        """Call a method on the actor of a place."""
        actor = self.actors[place]
        reference = getattr(actor, method).remote(*arguments)
        return Call(place, actor, method, arguments, reference)

    def send_all(self, method: str, *arguments: object) -> list[Call]:
        """Call a method with the same arguments on every actor."""
        return [self.send(place, method, *arguments) for place in range(len(self))]

    def collect(
        self, calls: Sequence[Call], timeout: float | None = None, *, replace_late: bool = False
    ) -> list[Any]:
        """Results of calls, in order, each within a deadline (None: the group's).

        Where `revive` is set, the calls of an actor that died are made again; with `replace_late`
        also those of one that misses the deadline, which is replaced.
        """
        timeout = timeout or self.timeout
        return [self._collect_one(call, timeout, replace_late=replace_late) for call in calls]

    def _collect_one(self, call: Call, timeout: float, *, replace_late: bool) -> Any:
        while True:
            try:
                who = f"the {self.role} worker {call.place}"
                return self._wait_for([call.reference], timeout, who)[0]
            except InputsLost:
                raise
            except NoAnswer:
                if not replace_late or self.revive is None:
                    raise
                self.replace(call)
                call = self.send(call.place, call.method, *call.arguments)
            except WorkerDied:
                if self.revive is None:
                    raise
                self.replace(call)
                call = self.send(call.place, call.method, *call.arguments)

    def _wait_for(self, references: Sequence[ObjectRef], timeout: float, who: str) -> list[Any]:
        has_more_to_do = self.alarm is not None or self.meanwhile is not None
        alarm = self._look_around if has_more_to_do else None
        return wait_for(references, timeout, who, alarm)

    def _look_around(self) -> None:
        for each in (self.alarm, self.meanwhile):
            if each is not None:
                each()

    def replace(self, call: Call) -> None:
        """Have the actor replaced that died during a call, unless it has been since.

        Raises WorkerDied where it cannot be.
        """
        if self.revive is None:
            raise WorkerDied(f"the {self.role} worker died and cannot be replaced alone")
        if self.actors[call.place] is call.actor:
            self.revive(call.place)

    def respawn(self, place: int) -> ActorHandle:
        """A new actor in the place of one that is dead or is to die."""
        if self._spawn is None:
            raise WorkerDied(f"the {self.role} worker cannot be replaced alone")
        with contextlib.suppress(RayActorError):
            ray.kill(self.actors[place])
        self.actors[place] = self._spawn(place)
        return self.actors[place]

    def silent(self, timeout: float, method: str = "ping") -> list[int]:
        """Places of the actors that do not answer a call within `timeout` seconds."""
        calls = self.start(method)
        ray.wait(calls, num_returns=len(calls), timeout=timeout)
        return [place for place, call in enumerate(calls) if not _has_come(call)]

    def call(self, method: str, *arguments: object) -> list[Any]:
        """`start`, then `wait`."""
        return self.wait(self.start(method, *arguments))
