"""What overlapping generation with learning gains, on Ray workers that only sleep.

`step_over_max_k1`: with max_staleness 1, the time of a step over the longer of generation and
learning, both of `--seconds`; `step_over_sum_k0` is what a synchronous run takes of their sum.
`learner_idle_k2`: with max_staleness 2 and prompts whose times are log-normal (σ 1) and generation
in 0.8 of the time of learning, the share of its time that the learner waits. A step has 64 prompts;
two generators work on two at a time each. The rollout manager, its pool and the actor group are
those of a run. The last line is a JSON object.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence

import ray
from ray.actor import ActorHandle
from virtual_generators import config, group_of, prompts

from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.driver.generator_pool import RayGenerators
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.rollout import RolloutManager
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import GenerationSettings, PromptTask, RolloutGroup

_GENERATORS = 2
_SLOTS = 2
_SAMPLES = 8
_BATCH = 64
_WARM_UP = 3  # steps
_ATTEND_EVERY = 0.1  # s


@ray.remote
class SleepingGenerator:
    """Sleeps for each prompt, a few at a time."""

    def __init__(self, seconds: float, sigma: float, seed: int) -> None:
        self._seconds, self._sigma = seconds, sigma
        self._chance = random.Random(seed)
        self._slots = asyncio.Semaphore(_SLOTS)

    async def ready(self) -> None:
        """Return once the process runs."""

    async def generate(
        self,
        tasks: Sequence[PromptTask],
        settings: GenerationSettings,  # noqa: ARG002
    ) -> list[RolloutGroup]:
        """Groups of one token."""
        return list(await asyncio.gather(*map(self._sample, tasks)))

    async def _sample(self, task: PromptTask) -> RolloutGroup:
        factor = self._chance.lognormvariate(-(self._sigma**2) / 2, self._sigma)
        async with self._slots:
            await asyncio.sleep(self._seconds * factor)
        return group_of(task, 0)


def main() -> None:
    """Measure and print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of learning, in each step")
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    seconds, steps = options.seconds, options.steps
    with ray_session():
        synchronous, _ = _measure(0, seconds, steps, generation=1.0, sigma=0.0)
        ahead, _ = _measure(1, seconds, steps, generation=1.0, sigma=0.0)
        _, idle = _measure(2, seconds, steps, generation=0.8, sigma=1.0)
    figures = {
        "step_over_sum_k0": synchronous / (2 * seconds),
        "step_over_max_k1": ahead / seconds,
        "learner_idle_k2": idle,
    }
    print(json.dumps(figures))


def _measure(
    staleness: int, seconds: float, steps: int, *, generation: float, sigma: float
) -> tuple[float, float]:
    """Seconds of a step, and the share of them that the learner waits.

    Generation of a batch takes `generation` times as long as learning.
    """
    each = generation * seconds * _GENERATORS * _SLOTS / _BATCH
    actors: list[ActorHandle] = [
        SleepingGenerator.options(num_cpus=0).remote(each, sigma, seed)
        for seed in range(_GENERATORS)
    ]
    group = ActorGroup("generator", actors, timeout=300)
    group.call("ready")
    pool = RayGenerators(group)
    chosen = config(
        _BATCH,
        steps + staleness + 1,
        samples=_SAMPLES,
        max_staleness=staleness,
        vllm_max_num_seqs=_SLOTS * _SAMPLES,
    )
    rollouts = RolloutManager(chosen, PromptSource(prompts(2 * _BATCH), 1), pool)
    rollouts.published(0)
    start = waited = 0.0
    for step in range(1, steps + 1):
        before = time.perf_counter()
        if step == _WARM_UP + 1:
            start, waited = before, 0.0
        rollouts.next_batch()
        waited += time.perf_counter() - before
        _learn(seconds, rollouts.attend)
        rollouts.published(step)
    elapsed = time.perf_counter() - start
    for actor in actors:
        ray.kill(actor)
    return elapsed / (steps - _WARM_UP), waited / elapsed


def _learn(seconds: float, meanwhile: Callable[[], None]) -> None:
    """Take so long, and do `meanwhile` as often as one who waits for a learner does."""
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        time.sleep(min(left, _ATTEND_EVERY))
        meanwhile()


if __name__ == "__main__":
    main()
