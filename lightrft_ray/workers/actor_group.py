"""The actors of one role, and waits on them that end."""

from collections.abc import Sequence
from typing import Any

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from lightrft_ray.config.errors import DataFault, InfrastructureError, UserError, WorkerDied


def wait_for(references: Sequence[ObjectRef], timeout: float, who: str) -> list[Any]:
    """The results, in order.

    Raises InfrastructureError that names `who` after `timeout` seconds, WorkerDied when its process
    is gone; a UserError or DataFault of the worker is raised as such.
    """
    try:
        return ray.get(list(references), timeout=timeout)
    except GetTimeoutError as error:
        raise InfrastructureError(f"{who} did not answer within {timeout:g} s") from error
    except RayActorError as error:
        reason = str(error).strip().splitlines()[-1]
        raise WorkerDied(f"{who} died: {reason}") from error
    except RayTaskError as error:
        if isinstance(error.cause, UserError | DataFault | InfrastructureError):
            raise error.cause from None
        raise InfrastructureError(f"{who} failed:\n{error}") from error


class ActorGroup:
    """The actors of one role, in the order of their ranks."""

    def __init__(self, role: str, actors: Sequence[ActorHandle], timeout: float) -> None:
        self.role = role
        self.actors = list(actors)
        self.timeout = timeout

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
        return wait_for(references, self.timeout, f"the {self.role} worker")

    def call(self, method: str, *arguments: object) -> list[Any]:
        """`start`, then `wait`."""
        return self.wait(self.start(method, *arguments))
