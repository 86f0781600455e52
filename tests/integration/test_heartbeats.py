"""Workers that are gone or hang are found in time, and busy ones are left alone."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from lightrft_ray.config import RecoveryConfig, WorkerDied
from lightrft_ray.driver.heartbeat import Heartbeats
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.liveness import HEALTH

SILENCE = 3.0  # s: recovery.heartbeat_timeout
FOUND_DEAD_WITHIN = 5.0  # s
KILL_GRACE = 8.0  # s: Ray asks a process to end, and kills one that does not answer after 5 s


@ray.remote(concurrency_groups={HEALTH: 1}, num_cpus=0)  # type: ignore[call-overload]
class Worker:
    """Works as a learner does: in methods that block."""

    def pid(self) -> int:
        return os.getpid()

    def compute(self, seconds: float) -> int:
        """Multiply matrices, which gives up the interpreter, and count in it, which does not."""
        end, rounds, matrix = time.monotonic() + seconds, 0, np.ones((600, 600))
        while time.monotonic() < end:
            matrix = matrix @ matrix / 600
            rounds += sum(range(100_000)) > 0
        return rounds

    @ray.method(concurrency_group=HEALTH)
    def ping(self) -> None: ...


class _Watched:
    """Groups of one worker each under heartbeats; what was reported, and when."""

    def __init__(self, *roles: str) -> None:
        self.groups = {role: ActorGroup(role, [Worker.remote()], 60.0) for role in roles}
        self.pids = {role: group.call("pid")[0] for role, group in self.groups.items()}
        self.reports: list[tuple[float, str]] = []
        settings = RecoveryConfig(heartbeat_timeout=SILENCE)
        self.heartbeats = Heartbeats(self.groups, settings, self._report)

    def _report(self, text: str) -> None:
        self.reports.append((time.monotonic(), text))

    def seconds_until_reported(self, words: str, since: float) -> float:
        """How long after `since` a report with some words came."""
        while time.monotonic() < since + 30:
            for when, text in self.reports:
                if words in text:
                    return when - since
            time.sleep(0.02)
        raise AssertionError(f"{words!r} is not in {self.reports}")


@pytest.fixture
def watch(local_ray: None) -> Iterator[Callable[..., _Watched]]:
    actors: list[ActorHandle] = []
    with ExitStack() as stack:

        def start(*roles: str) -> _Watched:
            watched = _Watched(*roles)
            actors.extend(group.actors[0] for group in watched.groups.values())
            stack.enter_context(watched.heartbeats)
            return watched

        yield start
    for actor in actors:
        ray.kill(actor)


def test_an_idle_worker_that_is_killed_is_found_and_ends_waits_on_others(
    watch: Callable[..., _Watched],
) -> None:
    watched = watch("learner", "generator")
    busy = watched.groups["generator"].start("compute", 30.0)
    began = time.monotonic()
    threading.Timer(0.5, os.kill, (watched.pids["learner"], signal.SIGKILL)).start()
    with pytest.raises(WorkerDied, match="the learner worker 0 died"):
        watched.groups["generator"].wait(busy)
    assert time.monotonic() - began < 0.5 + FOUND_DEAD_WITHIN


def test_a_stopped_worker_is_found_by_its_silence_and_killed(
    watch: Callable[..., _Watched],
) -> None:
    watched = watch("learner")
    group = watched.groups["learner"]
    began = time.monotonic()
    os.kill(watched.pids["learner"], signal.SIGSTOP)
    found = watched.seconds_until_reported("gives no sign of life", began)
    assert SILENCE - 1.5 < found < SILENCE + 2
    with pytest.raises(RayActorError):
        ray.get(group.actors[0].pid.remote(), timeout=KILL_GRACE)


def test_a_worker_in_a_long_computation_is_left_alone(watch: Callable[..., _Watched]) -> None:
    watched = watch("learner")
    (rounds,) = watched.groups["learner"].call("compute", 3 * SILENCE)
    assert rounds > 0
    assert watched.reports == []


def test_a_worker_that_can_be_replaced_ends_no_wait_on_another(
    watch: Callable[..., _Watched],
) -> None:
    watched = watch("reference", "learner")
    watched.groups["reference"].revive = lambda place: None
    began = time.monotonic()
    os.kill(watched.pids["reference"], signal.SIGKILL)
    watched.groups["learner"].call("compute", 3.0)
    assert watched.seconds_until_reported("the reference worker 0 died", began) < FOUND_DEAD_WITHIN
