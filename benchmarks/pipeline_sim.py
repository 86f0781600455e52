"""Asynchronous generation at sizes that nobody has at hand: a simulation on a virtual clock.

The rollout manager is the real one; generators and learner only take time. A generator works on
`--slots` prompts at once, each of which takes a log-normal time with a mean of one second, or, with
`--timeline`, one that a run recorded; a step has `--prompts` for each slot. Learning takes
`--learning` seconds a step, a publication holds everything for `--pause` seconds. For each number
of generators and each max_staleness, after a warm-up: seconds of a step, the shares of their time
that slots and learner work, and the mean and the largest staleness. The last line is a JSON object.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from virtual_generators import VirtualGenerators, config, log_normal, prompts, recorded

from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.driver.rollout import RolloutManager

_WARM_UP = 5  # steps
_SAMPLES = 8  # of a prompt: a slot works on all of them


@dataclass(frozen=True)
class Figures:
    """Of a simulated run."""

    generators: int
    max_staleness: int
    step_seconds: float
    generator_utilisation: float
    learner_utilisation: float
    staleness_mean: float
    staleness_max: int


def main() -> None:
    """Simulate all sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generators", type=int, nargs="+", default=[8, 32, 128, 1024])
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--over_age", choices=["wait", "drop"], default="wait")
    parser.add_argument("--over_sample_rate", type=float, default=0.0)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--timeline", type=Path, help="a run's timeline.jsonl")
    parser.add_argument("--learning", type=float, default=4.0)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    print("generators  k  step s  generators busy  learner busy  staleness mean  max")
    figures = []
    for generators in options.generators:
        for staleness in options.staleness:
            each = _simulate(options, generators, staleness)
            figures.append(each)
            print(
                f"{each.generators:10} {each.max_staleness:2} {each.step_seconds:7.2f} "
                f"{each.generator_utilisation:15.1%} {each.learner_utilisation:13.1%} "
                f"{each.staleness_mean:15.2f} {each.staleness_max:4}"
            )
    print(json.dumps({"runs": [asdict(each) for each in figures]}))


def _simulate(options: argparse.Namespace, generators: int, staleness: int) -> Figures:
    slots, steps = generators * options.slots, options.steps
    batch = slots * options.prompts
    # One that goes on beyond the steps that are measured: the end of a run is not its rate.
    chosen = config(
        batch,
        steps + staleness + 1,
        max_staleness=staleness,
        over_age=options.over_age if staleness else "wait",
        over_sample_rate=0.0 if staleness else options.over_sample_rate,
        vllm_max_num_seqs=options.slots * _SAMPLES,
        samples=_SAMPLES,
    )
    durations = recorded(options.timeline) if options.timeline else log_normal(options.sigma)
    pool = VirtualGenerators(generators, options.slots, durations, seed=1)
    rollouts = RolloutManager(chosen, PromptSource(prompts(2 * batch), 1), pool)
    rollouts.published(0)
    start = busy = 0.0
    ages: list[int] = []
    for step in range(1, steps + 1):
        if step == _WARM_UP + 1:
            start, busy = pool.now, pool.busy
        groups = rollouts.next_batch()
        begun = [int(group.samples[0].weight_versions[0]) for group in groups]
        pool.advance(options.learning, rollouts.attend)
        pool.pause(options.pause)
        pool.version = step
        rollouts.published(step)
        if step > _WARM_UP:
            ages += [step - 1 - version for version in begun]
    seconds = pool.now - start
    measured = steps - _WARM_UP
    return Figures(
        generators,
        staleness,
        step_seconds=round(seconds / measured, 4),
        generator_utilisation=round((pool.busy - busy) / (seconds * slots), 4),
        learner_utilisation=round(options.learning * measured / seconds, 4),
        staleness_mean=round(sum(ages) / len(ages), 4),
        staleness_max=max(ages),
    )


if __name__ == "__main__":
    main()
