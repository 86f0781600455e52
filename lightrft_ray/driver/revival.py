"""Replacing workers that died and hold nothing that only they know."""

import time
from collections.abc import Callable
from functools import partial

from lightrft_ray.config import WorkerDied
from lightrft_ray.driver.health import Health
from lightrft_ray.driver.heartbeat import Heartbeats
from lightrft_ray.driver.publication import WeightPublisher
from lightrft_ray.driver.restart_budget import RestartBudget
from lightrft_ray.driver.workers import START_TIMEOUT, Workers
from lightrft_ray.workers.actor_group import ActorGroup, wait_for

_SILENCE = 5.0  # s: of a reward model that is up, long enough to tell that it is not


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
        heartbeats: Heartbeats,
        report: Callable[[str], None],
    ) -> None:
        self._workers = workers
        self._publisher = publisher
        self._budget = budget
        self._heartbeats = heartbeats
        self._report = report
        workers.generator.revive = self._revive_generator
        workers.reward.revive = self._revive_reward
        for group in (workers.reference, *workers.reward_models.values()):
            if group is not None:
                group.revive = partial(self._revive, group)

    def _revive_generator(self, place: int) -> None:
        with self._heartbeats.replacing("generator", place) as health:
            self._start(self._workers.generator, place, health)
            self._publisher.catch_up(place)

    def _revive_reward(self, place: int) -> None:
        """And the reward models that died: the worker knows their actors from its start."""
        for group in self._workers.reward_models.values():
            for lost in group.silent(_SILENCE):
                self._revive(group, lost)
        self._revive(self._workers.reward, place)

    def _revive(self, group: ActorGroup, place: int) -> None:
        with self._heartbeats.replacing(group.role, place) as health:
            self._start(group, place, health)

    def _start(self, group: ActorGroup, place: int, health: Health) -> None:
        """Raises WorkerDied where the budget is spent."""
        delay = self._budget.spend()
        if delay is None:
            raise WorkerDied(f"the {group.role} worker died again, and no restart is left")
        time.sleep(delay)
        actor = group.respawn(place)
        who = f"the {group.role} worker (while starting again)"
        wait_for([actor.ready.remote()], START_TIMEOUT, who, group.alarm)
        health.started()
        self._report(f"the {group.role} worker {place} is started again")
