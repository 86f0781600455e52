"""Jobs on Ray actors: those that end, are cancelled, or go with the actor they ran on."""

import asyncio
from collections.abc import Sequence

import pytest
import ray
from ray.actor import ActorHandle

from lightrft_ray.config import InfrastructureError, NoAnswer, WorkerDied
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.generator_pool import RayGenerators
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import GenerationSettings, SkippedPrompt

SETTINGS = GenerationSettings(n=1, max_tokens=1, temperature=1.0)


@ray.remote
class Sleeper:
    """Sleeps as many seconds as its tasks are numbers for."""

    def __init__(self) -> None:
        self._slept = False

    async def generate(
        self, tasks: Sequence[float], settings: GenerationSettings, upcoming: Sequence[Prompt]
    ) -> list[SkippedPrompt]:
        self._slept = True
        await asyncio.sleep(sum(tasks))
        return []

    async def late_once(self, started: int) -> int:
        """Hangs in a process that has slept before."""
        if self._slept:
            await asyncio.sleep(3600)
        return started or 1

    async def ping(self) -> None:
        pass


def _group(count: int, timeout: float) -> ActorGroup:
    def spawn(place: int) -> ActorHandle:
        return Sleeper.options(num_cpus=0).remote()

    actors = [spawn(place) for place in range(count)]
    ActorGroup("generator", actors, 60, spawn).call("ping")  # a start takes longer than a job
    return ActorGroup("generator", actors, timeout, spawn)


def test_jobs_end_are_cancelled_and_are_missed(local_ray: None) -> None:
    pool = RayGenerators(_group(2, timeout=20))
    assert pool.wait(at_least_one=False) == []
    with pytest.raises(RuntimeError, match="no job"):
        pool.wait(at_least_one=True)
    pool.submit(1, 0, [3600], SETTINGS)
    pool.submit(2, 1, [0], SETTINGS)
    assert pool.wait(at_least_one=True) == [2]
    assert pool.collect(2) == []
    pool.cancel(1)
    assert pool.wait(at_least_one=False) == []
    hurried = RayGenerators(_group(1, timeout=0.5))
    hurried.submit(1, 0, [3600], SETTINGS)
    with pytest.raises(InfrastructureError, match=r"generator worker .* within 0\.5 s"):
        hurried.wait(at_least_one=True)


def test_a_generator_that_died_is_replaced_once_and_its_other_jobs_are_given_up(
    local_ray: None,
) -> None:
    group = _group(1, timeout=20)
    replaced: list[int] = []

    def revive(place: int) -> None:
        replaced.append(place)
        group.respawn(place)

    group.revive = revive
    pool = RayGenerators(group)
    for job in (1, 2, 3):
        pool.submit(job, 0, [3600], SETTINGS)
    ray.kill(group.actors[0])
    dead = pool.wait(at_least_one=True)[0]
    with pytest.raises(WorkerDied):
        pool.collect(dead)
    pool.restore(dead)
    first, second = {1, 2, 3} - {dead}
    pool.cancel(first)
    pool.restore(second)  # it was on the same actor, which is replaced already
    assert replaced == [0]
    pool.submit(4, 0, [0], SETTINGS)
    assert pool.wait(at_least_one=True) == [4]


def test_a_generator_that_misses_a_publication_is_replaced_before_it_gets_work(
    local_ray: None,
) -> None:
    """The call is made again, to the new one; without a replacement the place is named."""
    group = _group(2, timeout=20)
    call = group.send(1, "generate", [3600], SETTINGS, [])
    with pytest.raises(NoAnswer, match=r"the generator worker 1 did not answer within 0\.3 s"):
        group.collect([call], 0.3)
    replaced: list[int] = []

    def revive(place: int) -> None:
        replaced.append(place)
        group.respawn(place)

    group.revive = revive
    late, old = group.send(1, "late_once", 0), group.actors[1]
    assert group.collect([late, group.send(0, "late_once", 1)], 5, replace_late=True) == [1, 1]
    assert replaced == [1]
    assert group.actors[1] is not old
