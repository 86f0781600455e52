"""Generators of which only the time is simulated, for the real rollout manager."""

import heapq
import json
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.workers.messages import (
    GeneratedSample,
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)

Durations = Callable[[random.Random], float]
"""Draws the seconds that a prompt takes."""


@dataclass
class _Job:
    """A job's prompts, and the weights and the generator that it was begun with."""

    tasks: Sequence[PromptTask]
    version: int
    place: int
    left: int
    """Prompts that it still needs."""
    ends: list[float] = field(default_factory=list)
    """When those end that are worked on, by the generators' clock."""


class VirtualGenerators:
    """A pool on a virtual clock: each generator works on `slots` prompts at once, in order."""

    def __init__(self, places: int, slots: int, durations: Durations, seed: int) -> None:
        self.now = 0.0
        self.busy = 0.0
        """Seconds that slots have worked, summed up."""
        self.version = 0
        self._paused = 0.0  # by so much the generators' own clock is late
        self._durations = durations
        self._chance = random.Random(seed)
        self._free = [slots] * places
        self._queues: list[deque[int]] = [deque() for _ in range(places)]
        self._jobs: dict[int, _Job] = {}
        # A heap of time and job; those of jobs that were cancelled are left in.
        self._ends: list[tuple[float, int]] = []
        self._ended: list[int] = []

    def __len__(self) -> int:
        return len(self._free)

    def submit(
        self,
        job: int,
        place: int,
        tasks: Sequence[PromptTask],
        settings: GenerationSettings,  # noqa: ARG002
        upcoming: Sequence[Prompt] = (),  # noqa: ARG002
    ) -> None:
        """Begin a job's prompts, or queue them."""
        self._jobs[job] = _Job(tasks, self.version, place, len(tasks))
        self._queues[place].extend([job] * len(tasks))
        self._begin(place)

    def wait(self, *, at_least_one: bool) -> list[int]:
        """The jobs that have ended; the clock goes on to the first where that is asked for."""
        while at_least_one and not self._ended:
            self._end_first()
        ended, self._ended = self._ended, []
        return [job for job in ended if job in self._jobs]

    def collect(self, job: int) -> list[RolloutGroup | SkippedPrompt]:
        """One sample of one token for each prompt."""
        done = self._jobs.pop(job)
        return [group_of(task, done.version) for task in done.tasks]

    def cancel(self, job: int) -> None:
        """Its results are not wanted, and what works on it is free at once."""
        cancelled = self._jobs.pop(job)
        now = self.now - self._paused
        self.busy -= sum(end - now for end in cancelled.ends)
        self._free[cancelled.place] += len(cancelled.ends)
        self._begin(cancelled.place)

    def restore(self, job: int) -> None:
        """Virtual generators do not die."""
        raise RuntimeError(f"job {job} cannot have died")

    def advance(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Let so much time go by while generators work; do `meanwhile` whenever a job ends."""
        until = self.now + seconds
        while self._ends and self._ends[0][0] <= until - self._paused:
            self._end_first()
            if self._ended:
                meanwhile()
        self.now = until

    def pause(self, seconds: float) -> None:
        """Let so much time go by while they do not."""
        self.now += seconds
        self._paused += seconds

    def _end_first(self) -> None:
        end, number = heapq.heappop(self._ends)
        job = self._jobs.get(number)
        if job is None:
            return
        self.now = end + self._paused
        job.ends.remove(end)
        job.left -= 1
        if job.left == 0:
            self._ended.append(number)
        self._free[job.place] += 1
        self._begin(job.place)

    def _begin(self, place: int) -> None:
        queue = self._queues[place]
        while self._free[place] and queue:
            number = queue.popleft()
            if (job := self._jobs.get(number)) is None:
                continue
            seconds = self._durations(self._chance)
            end = self.now - self._paused + seconds
            self._free[place] -= 1
            self.busy += seconds
            job.ends.append(end)
            heapq.heappush(self._ends, (end, number))


def log_normal(sigma: float) -> Durations:
    """Times with a mean of one second."""
    return lambda chance: chance.lognormvariate(-(sigma**2) / 2, sigma)


def recorded(timeline: Path) -> Durations:
    """Times that generators took for a call, by a run's timeline.jsonl.

    In an asynchronous run each call is for one prompt. Raises UserError where there is none.
    """
    lines = timeline.read_text(encoding="utf-8").splitlines()
    spans = [span for line in lines for span in json.loads(line)["spans"]]
    seconds = [
        span["end"] - span["start"]
        for span in spans
        if span["who"].startswith("generator/") and span["phase"] == "generate"
    ]
    if not seconds:
        raise UserError(f"{timeline} has no call of a generator: give that of another run")
    return lambda chance: chance.choice(seconds)


def group_of(task: PromptTask, version: int, *, samples: int = 1, tokens: int = 1) -> RolloutGroup:
    """What a generator with these weights makes of a task, in form."""
    sample = GeneratedSample(
        token_ids=np.ones(tokens, dtype=np.int64),
        log_probs=np.full(tokens, -math.log(2), dtype=np.float32),
        weight_versions=np.full(tokens, version, dtype=np.int64),
        text="",
        is_truncated=False,
    )
    return RolloutGroup(task, np.ones(8, dtype=np.int64), None, (sample,) * samples)


def prompts(count: int) -> list[Prompt]:
    """Prompts that differ by their ids."""
    return [Prompt(f"p{index}", (), (), Path(), "", "") for index in range(count)]


def config(batch: int, steps: int, *, samples: int = 8, **rollout: object) -> RunConfig:
    """A run of this shape, with more settings of `rollout`."""
    return RunConfig.model_validate(
        {
            "rollout": {
                "rollout_batch_size": batch,
                "n_samples_per_prompt": samples,
                **rollout,
            },
            "trainer": {
                "num_steps": steps,
                "train_batch_size": batch * samples,
                "micro_train_batch_size": samples,
            },
            "algorithm": {"old_log_probs": "learner"},
        }
    )
