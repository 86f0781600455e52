"""Generators that hang are found by their silence and killed, so that they are replaced."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import ray
from ray import ObjectRef
from ray.actor import ActorHandle

from lightrft_ray.config import RecoveryConfig
from lightrft_ray.driver.health import Health, State
from lightrft_ray.workers.actor_group import ActorGroup


class Heartbeats:
    """Asks the actors of a group for signs of life while its block lasts.

    Their class must answer `ping` while it works. A wait for one that is killed ends at once, as
    with any that dies; that wait is where it is replaced.
    """

    def __init__(
        self, group: ActorGroup, settings: RecoveryConfig, report: Callable[[str], None]
    ) -> None:
        self._group = group
        self._interval = settings.heartbeat_timeout / 4
        self._report = report
        self.health = [Health(settings, time.monotonic()) for _ in group.actors]
        self._pings: dict[ActorHandle, ObjectRef] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval):
            for place, health in enumerate(self.health):
                actor = self._group.actors[place]  # before looking at it: it may be replaced
                if health.can_serve:
                    self._look_at(place, health, actor)

    def _look_at(self, place: int, health: Health, actor: ActorHandle) -> None:
        ping = self._pings.pop(actor, None) or actor.ping.remote()
        done, _ = ray.wait([ping], timeout=0)
        if done:
            health.beat(time.monotonic())  # or it died, which whoever waits for it is told
        else:
            self._pings[actor] = ping
        if health.check(time.monotonic()) is State.DEAD:
            self._report(f"the {self._group.role} worker {place} gives no sign of life: killed")
            ray.kill(actor)
