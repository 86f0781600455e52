"""Replacing workers that died and hold nothing that only they know."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from lightrft_ray.config import WorkerDied
from lightrft_ray.driver.health import Health, State
from lightrft_ray.driver.publication import WeightPublisher
from lightrft_ray.driver.restart_budget import RestartBudget
from lightrft_ray.driver.workers import START_TIMEOUT, Workers
from lightrft_ray.workers.actor_group import ActorGroup, wait_for


class Reviver:
    """Starts generators, reference and reward workers again, each in its own place.

    The new one gets the calls that the dead one left undone, a generator only after it has the
    current weights. Seeds belong to the calls, so that the results are the same.
    """

    def __init__(
        self,
        workers: Workers,
        publisher: WeightPublisher,
        budget: RestartBudget,
        health: Sequence[Health],
        report: Callable[[str], None],
    ) -> None:
        """`health` is that of the generators."""
        self._publisher = publisher
        self._budget = budget
        self._report = report
        self._health = health
        workers.generator.revive = partial(self._revive_generator, workers.generator)
        for group in (workers.reward, workers.reference):
            if group is not None:
                group.revive = partial(self._revive, group)

    def _revive_generator(self, group: ActorGroup, place: int) -> None:
        health = self._health[place]
        health.died()
        health.restart()
        self._revive(group, place)
        health.started()
        self._publisher.catch_up(place)
        if health.state is State.STALE:  # and did not die, and catch up, once more meanwhile
            health.caught_up(time.monotonic())

    def _revive(self, group: ActorGroup, place: int) -> None:
        """Raises WorkerDied where the budget is spent."""
        delay = self._budget.spend()
        if delay is None:
            raise WorkerDied(f"the {group.role} worker died again, and no restart is left")
        self._report(f"the {group.role} worker {place} died and is started again")
        time.sleep(delay)
        actor = group.respawn(place)
        who = f"the {group.role} worker (while starting again)"
        wait_for([actor.ready.remote()], START_TIMEOUT, who)
