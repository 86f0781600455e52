"""Looking at a run: its workers' work, samples for people, and what the looking costs."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import ray
from ray import ObjectRef

from lightrft_ray.config import InfrastructureError, RunConfig
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.run_log import RunLog
from lightrft_ray.driver.stopwatch import Stopwatch
from lightrft_ray.driver.trajectories import TrajectoryRecorder
from lightrft_ray.driver.workers import Workers
from lightrft_ray.observe.timeline import Span
from lightrft_ray.observe.utilization import busy_share
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.activity import WorkDone
from lightrft_ray.workers.actor_group import wait_for

Record = dict[str, float]

_PATIENCE = 0.02  # s: what a worker does then is told with the next step
_OBSERVING = "observe"  # the phase of a worker's calls that nothing but observation needs


class Observer:
    """Notes what happens in a run without taking part in it.

    A worker that does not answer, or died, costs a step's figures of it and nothing else.
    """

    def __init__(self, config: RunConfig, workers: Workers, log: RunLog) -> None:
        self._workers = workers
        self._log = log
        self._samples = TrajectoryRecorder(config, workers.learner, log.trajectories)
        self._pending: dict[ObjectRef, str] = {}
        self._background_seconds = log.background_seconds
        self._cost = 0.0

    @contextmanager
    def costing(self) -> Iterator[None]:
        """Count a block as time that observation takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._cost += time.perf_counter() - start

    def look_at(self, step: int, batch: RolloutBatch, experience: ExperienceVL) -> None:
        """Keep samples of a step where it is due; before the learner's updates are asked for."""
        if self._samples.is_due(step):
            with self.costing():
                self._samples.record(step, batch, experience)

    def finish(self, step: int, watch: Stopwatch) -> Record:
        """Write the step's timeline; metrics of the workers' work and of the cost of all this.

        The cost is of everything since the last call: reporting a step counts for the next one.
        """
        with self.costing():
            ended = time.time()
            done = self._work_done()
            spans = [Span("driver", *span) for span in watch.spans]
            spans += [Span(who, *span) for who, work in done.items() for span in work.spans]
            self._log.timeline.log(step, spans)
            record = _busy(self._sizes(), spans, watch.started, ended)
            record |= memory_by_phase(done)
        return record | {"time/observe": self._take_cost(spans)}

    def _work_done(self) -> dict[str, WorkDone]:
        """By worker ("generator/0"), of those that answer at once."""
        for role, group in self._workers.by_role().items():
            for place, reference in enumerate(group.start("work_done")):
                self._pending[reference] = f"{role}/{place}"
        answered, _ = ray.wait(
            list(self._pending), num_returns=len(self._pending), timeout=_PATIENCE
        )
        done: dict[str, WorkDone] = {}
        for reference in answered:
            who = self._pending.pop(reference)
            try:
                work = wait_for([reference], _PATIENCE, who)[0]
            except InfrastructureError:  # whoever needs its work is told so
                continue
            done[who] = done[who].joined(work) if who in done else work
        return done

    def _sizes(self) -> dict[str, int]:
        return {role: len(group) for role, group in self._workers.by_role().items()}

    def _take_cost(self, spans: Sequence[Span]) -> float:
        """Seconds of the driver, of its background threads and of the learner."""
        background = self._log.background_seconds
        asked = {span.who: 0.0 for span in spans if span.phase == _OBSERVING}
        for span in spans:
            if span.phase == _OBSERVING:
                asked[span.who] += span.end - span.start
        cost = self._cost + background - self._background_seconds + max(asked.values(), default=0)
        self._cost, self._background_seconds = 0.0, background
        return cost


def _busy(sizes: Mapping[str, int], spans: Sequence[Span], start: float, end: float) -> Record:
    """Of each kind of role, the share of a step in which its workers worked."""
    record: Record = {}
    workers: dict[str, list[str]] = {}
    for role, size in sizes.items():
        names = [f"{role}/{place}" for place in range(size)]
        workers.setdefault(role.partition(".")[0], []).extend(names)
    for kind, names in workers.items():
        record[f"busy/{kind}"] = busy_share(spans, names, start, end)
    return record


def memory_by_phase(done: Mapping[str, WorkDone]) -> Record:
    """Of each kind of role and phase, the memory of the largest worker, and that of its GPU."""
    record: Record = {}
    for who, work in done.items():
        kind = who.partition("/")[0].partition(".")[0]
        named = {f"{phase}_mb": mb for phase, mb in work.memory_mb.items()}
        named |= {f"{phase}_gpu_mb": mb for phase, mb in work.gpu_mb.items()}
        for phase, mb in named.items():
            name = f"memory/{kind}/{phase}"
            record[name] = max(mb, record.get(name, 0.0))
    return record
