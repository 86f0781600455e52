"""Generators of which only the time is simulated, for the real rollout manager."""

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lightrft_ray.config import RunConfig
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.workers.messages import (
    GeneratedSample,
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)


class VirtualGenerators:
    """A pool on a virtual clock: each generator works on `slots` prompts at once, in order.

    How long a prompt takes is log-normal with a mean of one second.
    """

    def __init__(self, places: int, slots: int, sigma: float, seed: int) -> None:
        self.now = 0.0
        self.busy = 0.0
        """Seconds that slots have worked, summed up."""
        self.version = 0
        self._sigma = sigma
        self._chance = random.Random(seed)
        self._free = [slots] * places
        self._queues: list[deque[int]] = [deque() for _ in range(places)]
        self._jobs: dict[int, tuple[int, Sequence[PromptTask]]] = {}  # with the version
        self._left: dict[int, int] = {}  # prompts that a job still needs
        self._ends: list[tuple[float, int, int]] = []  # a heap of time, job, place
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
        self._jobs[job] = (self.version, tasks)
        self._left[job] = len(tasks)
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
        version, tasks = self._jobs.pop(job)
        return [group_of(task, version) for task in tasks]

    def cancel(self, job: int) -> None:
        """Its results are not wanted, and what works on it is free at once."""
        del self._jobs[job]
        for queue in self._queues:
            while job in queue:
                queue.remove(job)
        working = [place for _, each, place in self._ends if each == job]
        self._ends = [end for end in self._ends if end[1] != job]
        heapq.heapify(self._ends)
        for place in working:
            self._free[place] += 1
            self._begin(place)

    def restore(self, job: int) -> None:
        """Virtual generators do not die."""
        raise RuntimeError(f"job {job} cannot have died")

    def advance(self, seconds: float) -> None:
        """Let so much time go by while generators work."""
        until = self.now + seconds
        while self._ends and self._ends[0][0] <= until:
            self._end_first()
        self.now = until

    def pause(self, seconds: float) -> None:
        """Let so much time go by while they do not."""
        self.now += seconds
        self._ends = [(end + seconds, job, place) for end, job, place in self._ends]

    def _end_first(self) -> None:
        self.now, job, place = heapq.heappop(self._ends)
        self._left[job] -= 1
        if self._left[job] == 0:
            del self._left[job]
            self._ended.append(job)
        self._free[place] += 1
        self._begin(place)

    def _begin(self, place: int) -> None:
        while self._free[place] and self._queues[place]:
            job = self._queues[place].popleft()
            seconds = self._chance.lognormvariate(-(self._sigma**2) / 2, self._sigma)
            self._free[place] -= 1
            self.busy += seconds
            heapq.heappush(self._ends, (self.now + seconds, job, place))


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


def config(
    batch: int, staleness: int, steps: int, *, samples: int = 8, over_age: str = "wait"
) -> RunConfig:
    """A run of this shape."""
    return RunConfig.model_validate(
        {
            "rollout": {
                "rollout_batch_size": batch,
                "n_samples_per_prompt": samples,
                "max_staleness": staleness,
                "over_age": over_age,
            },
            "trainer": {
                "num_steps": steps,
                "train_batch_size": batch * samples,
                "micro_train_batch_size": samples,
            },
            "algorithm": {"old_log_probs": "learner"},
        }
    )
