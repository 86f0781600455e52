"""Work that generators do in the background: jobs of prompts, by number."""

from collections.abc import Sequence
from typing import Protocol

import ray

from lightrft_ray.config import InfrastructureError
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.workers.actor_group import ActorGroup, Call
from lightrft_ray.workers.messages import (
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)

Results = list[RolloutGroup | SkippedPrompt]


class GeneratorPool(Protocol):
    """What the rollout manager needs of generators; a simulation can be one, too."""

    def __len__(self) -> int:
        """The number of generators."""
        ...

    def submit(
        self,
        job: int,
        place: int,
        tasks: Sequence[PromptTask],
        settings: GenerationSettings,
        upcoming: Sequence[Prompt] = (),
    ) -> None:
        """Have the generator of a place sample the prompts, and then make the upcoming ready."""
        ...

    def wait(self, *, at_least_one: bool) -> list[int]:
        """The jobs that have ended, whatever way.

        Waits for the first where `at_least_one`; raises InfrastructureError after too long.
        """
        ...

    def collect(self, job: int) -> Results:
        """The results of a job that has ended, in the order of its tasks; the job is forgotten.

        Raises WorkerDied where its generator died.
        """
        ...

    def cancel(self, job: int) -> None:
        """Have a job not be done, and forget it."""
        ...

    def restore(self, job: int) -> None:
        """Have the generator replaced that a job died with; returns when it can be given work.

        Raises WorkerDied where it cannot be.
        """
        ...


class RayGenerators:
    """The generators of a run."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._calls: dict[int, Call] = {}

    def __len__(self) -> int:
        return len(self._group)

    def submit(
        self,
        job: int,
        place: int,
        tasks: Sequence[PromptTask],
        settings: GenerationSettings,
        upcoming: Sequence[Prompt] = (),
    ) -> None:
        """Have the generator of a place sample the prompts, and then make the upcoming ready."""
        self._calls[job] = self._group.send(place, "generate", tasks, settings, upcoming)

    def wait(self, *, at_least_one: bool) -> list[int]:
        """The jobs that have ended; raises InfrastructureError after the group's deadline."""
        jobs = {call.reference: job for job, call in self._calls.items()}
        if not jobs and at_least_one:
            raise RuntimeError("there is no job to wait for")
        if not jobs:
            return []
        if at_least_one:
            first, _ = ray.wait(list(jobs), timeout=self._group.timeout)
            if not first:
                raise InfrastructureError(
                    f"the {self._group.role} worker did not answer within {self._group.timeout:g} s"
                )
        done, _ = ray.wait(list(jobs), num_returns=len(jobs), timeout=0)
        return [jobs[reference] for reference in done]

    def collect(self, job: int) -> Results:
        """The results of a job that has ended; raises WorkerDied where its generator died."""
        results: Results = self._group.wait([self._calls[job].reference])[0]
        del self._calls[job]
        return results

    def cancel(self, job: int) -> None:
        """Have a job not be done, and forget it."""
        ray.cancel(self._calls.pop(job).reference)

    def restore(self, job: int) -> None:
        """Have the generator replaced that a job died with."""
        self._group.replace(self._calls.pop(job))
