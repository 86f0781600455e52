"""Workers that are gone, or hang, are found by their silence, whoever waits for them or not."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError

from lightrft_ray.config import RecoveryConfig, WorkerDied
from lightrft_ray.driver.health import Health, State
from lightrft_ray.workers.actor_group import ActorGroup

_LONGEST_INTERVAL = 1.0  # s: one that is gone is to be found within seconds


class Heartbeats:
    """Asks the actors of all groups for signs of life while its block lasts.

    Their classes answer `ping` while they work. One that is silent for too long is killed, and a
    wait for it ends at once, as for any that died; that wait is where it is replaced. Where a group
    has no `revive`, the loss of one of its actors ends each wait on any of the groups.
    """

    def __init__(
        self,
        groups: Mapping[str, ActorGroup],
        settings: RecoveryConfig,
        report: Callable[[str], None],
    ) -> None:
        """`groups` by role."""
        self._groups = groups
        self._settings = settings
        self._interval = min(settings.heartbeat_timeout / 4, _LONGEST_INTERVAL)
        self._report = report
        now = time.monotonic()
        self._health = {
            role: [Health(settings, now) for _ in group.actors] for role, group in groups.items()
        }
        self._pings: dict[ActorHandle, ObjectRef] = {}
        self._lost: WorkerDied | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        for group in self._groups.values():
            group.alarm = self._raise_lost
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
        for group in self._groups.values():
            group.alarm = None

    @contextmanager
    def replacing(self, role: str, place: int) -> Iterator[Health]:
        """Note a death; after the block, which replaces the worker, the new one is watched."""
        health = self._health[role][place]
        with self._lock:
            self._note_death(role, place)
            health.restart()
        yield health
        with self._lock:
            if health.state is State.STALE:  # and has not died and been replaced once more
                health.caught_up(time.monotonic())

    def _raise_lost(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval):
            for role, group in self._groups.items():
                for place in range(len(group)):
                    self._look_at(role, place)

    def _look_at(self, role: str, place: int) -> None:
        health = self._health[role][place]
        with self._lock:
            actor = self._groups[role].actors[place]
            if not health.can_serve:
                return
            sign = self._sign_of_life(actor)
            if sign is True:
                health.beat(time.monotonic())
            if sign is False:
                self._note_death(role, place)
            elif health.check(time.monotonic()) is State.DEAD:
                self._report(f"the {role} worker {place} gives no sign of life and is killed")
                self._lose(role, place)
                ray.kill(actor)

    def _sign_of_life(self, actor: ActorHandle) -> bool | None:
        """True for an answer, False where the process is gone, None while nothing has come."""
        ping = self._pings.pop(actor, None) or actor.ping.remote()
        done, _ = ray.wait([ping], timeout=0)
        if not done:
            self._pings[actor] = ping
            return None
        try:
            ray.get(done[0])
        except RayActorError:
            return False
        except RayError:  # it runs, and cannot say that it is well
            return None
        return True

    def _note_death(self, role: str, place: int) -> None:
        health = self._health[role][place]
        if health.state is not State.DEAD:
            health.died()
            self._report(f"the {role} worker {place} died")
            self._lose(role, place)

    def _lose(self, role: str, place: int) -> None:
        if self._groups[role].revive is None and self._lost is None:
            self._lost = WorkerDied(f"the {role} worker {place} died")
