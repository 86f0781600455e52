"""What the driver itself takes for a prompt group, on Ray workers that do nothing.

1,000 groups are in flight: two batches of 500 with max_staleness 1, of 8 samples of 64 tokens.
Measured are taking prompts, giving them out, gathering, batching and assembling; the generators
answer at once. `ms_per_group` is the wall-clock time over the groups that were trained. The last
line is a JSON object.
"""

import argparse
import json
import time
from collections.abc import Sequence

import ray
import torch
from virtual_generators import config, group_of, prompts

from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.generator_pool import RayGenerators
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.rollout import RolloutManager
from lightrft_ray.trainer.assemble import Scores
from lightrft_ray.trainer.assembler import Assembler
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import GenerationSettings, PromptTask, RolloutGroup

_GENERATORS = 2
_SAMPLES = 8
_TOKENS = 64
_WARM_UP = 2  # steps


@ray.remote
class NullGenerator:
    """Answers at once."""

    async def ready(self) -> None:
        """Return once the process runs."""

    async def generate(
        self, tasks: Sequence[PromptTask], settings: GenerationSettings
    ) -> list[RolloutGroup]:
        """Groups of equal samples."""
        return [group_of(task, 0, samples=settings.n, tokens=_TOKENS) for task in tasks]


def main() -> None:
    """Measure and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    with ray_session():
        seconds, in_flight = _measure(options.batch, options.steps)
    figures = {
        "ms_per_group": 1000 * seconds / ((options.steps - _WARM_UP) * options.batch),
        "in_flight": in_flight,
    }
    print(json.dumps(figures))


def _measure(batch: int, steps: int) -> tuple[float, int]:
    """Seconds of the steps after the warm-up, and the groups in flight between two of them."""
    actors = [NullGenerator.options(num_cpus=0).remote() for _ in range(_GENERATORS)]
    group = ActorGroup("generator", actors, timeout=300)
    group.call("ready")
    pool = RayGenerators(group)
    chosen = config(batch, steps + 2, samples=_SAMPLES, max_staleness=1)
    rollouts = RolloutManager(chosen, PromptSource(prompts(4 * batch), 1), pool)
    rollouts.published(0)
    assembler = Assembler(chosen)
    start, in_flight = time.perf_counter(), 0
    for step in range(1, steps + 1):
        if step == _WARM_UP + 1:
            start = time.perf_counter()
        groups = rollouts.next_batch()
        _assemble(assembler, groups)
        rollouts.account.trained += len(groups)
        rollouts.published(step)
        in_flight = rollouts.account.in_flight
    return time.perf_counter() - start, in_flight


def _assemble(assembler: Assembler, groups: list[RolloutGroup]) -> None:
    batch = RolloutBatch.of(groups, pad_token_id=0)
    log_probs = batch.rollout_log_probs
    scores = Scores(
        rewards=torch.rand(len(batch.group_ids)),
        group_ids=batch.group_ids,
        action_log_probs=log_probs,
        rollout_log_probs=log_probs,
        is_truncated=batch.is_truncated,
    )
    assembler.assemble(batch.samples, scores)


if __name__ == "__main__":
    main()
