"""The rollout manager: prompts in, finished groups out, every prompt accounted for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from lightrft_ray.config import RunConfig, UserError, WorkerDied
from lightrft_ray.data.difficulty import PassRates
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.prompt_source import PromptSource, mixture
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.generator_pool import GeneratorPool, Results
from lightrft_ray.driver.rollout_scheduler import RolloutScheduler, by_place
from lightrft_ray.driver.seeds import prompt_seed
from lightrft_ray.driver.token_forecast import TokenForecast
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import (
    FirstToken,
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)

_REASONS_NAMED = 3
_LOADS_GIVEN = 2  # times what a generator decodes at once: the next is there when that ends


@dataclass
class PromptAccount:
    """Where the prompts went that were taken.

    taken = trained + filtered + cancelled + failed + in_flight. `failed` prompts could not be used
    (a data fault); `filtered` ones had no sample with a reward, or were left out by dynamic
    sampling; `cancelled` ones took longer than a whole batch of others.
    """

    taken: int = 0
    trained: int = 0
    filtered: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def in_flight(self) -> int:
        """Prompts that are somewhere between being taken and their end."""
        return self.taken - self.trained - self.filtered - self.cancelled - self.failed

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        counts = {f"data/{field.name}": getattr(self, field.name) for field in fields(self)}
        return {**counts, "data/in_flight": self.in_flight}


class RolloutManager:
    """Gives out prompts to the generators and gathers their groups.

    With `rollout.max_staleness` above 0 the generators are given the prompts of coming steps as
    soon as they have new weights and room, and work on them while the learner trains. With
    `rollout.over_sample_rate` above 0, the slowest of a step are given up.
    """

    def __init__(self, config: RunConfig, source: PromptSource, generators: GeneratorPool) -> None:
        self._config = config
        self._source = source
        self._generators = generators
        rollout = config.rollout
        self._runs_ahead = rollout.max_staleness > 0
        self._in_lockstep = rollout.in_lockstep
        self._scheduler = RolloutScheduler(
            batch_size=rollout.rollout_batch_size,
            max_staleness=rollout.max_staleness,
            places=len(generators),
            over_age=rollout.over_age,
            last_version=config.trainer.num_steps if self._runs_ahead else None,
            room=None if self._in_lockstep else _room(config),
            spare=rollout.spare_prompts,
        )
        self._forecast = TokenForecast(rollout.generated_per_prompt * rollout.generate_max_len)
        self._tasks: dict[int, PromptTask] = {}
        self._results: dict[int, RolloutGroup] = {}
        self._jobs: dict[int, list[int]] = {}  # the groups of each job
        self._jobs_begun = 0
        self._reasons: list[str] = []
        self._begun_anew = 0
        self._can_begin = False  # until generators have the weights of the run
        self.account = PromptAccount()

    def next_batch(self) -> list[RolloutGroup]:
        """`rollout_batch_size` groups; a prompt that cannot be used is replaced by the next one.

        Raises UserError once more prompts than `max_bad_fraction` could not be used.
        """
        self._scheduler.draw_again()
        self._refill()
        self._gather(at_least_one=False)
        while (batch := self._scheduler.take()) is None:
            self._gather(at_least_one=True)
            if not self._in_lockstep or not self._jobs:
                self._refill()
        if self._config.rollout.spare_prompts:
            self._cancel_rest()
        for number in batch:
            del self._tasks[number]
        return [self._results.pop(number) for number in batch]

    def published(self, version: int) -> None:
        """The generators have this version of the weights from now on."""
        self._can_begin = True
        over_age = self._scheduler.published(version)
        self._begun_anew += len(over_age)
        self._forget(over_age)
        if self._runs_ahead:
            self._gather(at_least_one=False)
            self._refill()

    def attend(self) -> None:
        """Take in what has ended, and give generators with room more, while others are waited for.

        What died is left for `next_batch`, where it can be replaced.
        """
        if self._runs_ahead and self._can_begin:
            with suppress(WorkerDied):
                for job in self._generators.wait(at_least_one=False):
                    self._collect(job)
            self._refill()

    def note_rewards(self, groups: Sequence[RolloutGroup], rewards: Tensor) -> None:
        """Tell which prompts were solved; `rewards` (B,) are of all their samples, NaN failed."""
        for name, rate in pass_rates(groups, rewards, self._config.reward.correct_from):
            self._source.note(name, rate)

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        record = self.account.as_record() | self._source.as_record()
        return record | {"data/begun_anew": self._begun_anew} if self._runs_ahead else record

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain values.

        Prompts that are in flight will be sampled again, with the same seeds.
        """
        in_flight = [self._tasks[number] for number in self._scheduler.in_flight]
        return {
            "source": self._source.state_dict(),
            "account": asdict(self.account),
            "reasons": self._reasons[:_REASONS_NAMED],
            "in_flight": [[task.prompt.id, task.epoch] for task in in_flight],
            "begun_anew": self._begun_anew,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self._source.load_state_dict(state["source"])
        self.account = PromptAccount(**state["account"])
        self._reasons = list(state["reasons"])
        self._begun_anew = state["begun_anew"]
        for name, epoch in state["in_flight"]:
            self._add(self._source.prompt(name), epoch)

    def _refill(self) -> None:
        """Take as many prompts as may be under way, and give them out.

        In lockstep only when nothing is, so that what replaces unusable prompts runs together, too.
        """
        taken = self._source.take(self._scheduler.wanted())
        self.account.taken += len(taken)
        for prompt, epoch in taken:
            self._add(prompt, epoch)
        self._give_out()

    def _give_out(self) -> None:
        """Submit all groups that wait and have a generator that is up.

        In lockstep only these are under way: each generator is told which prompts it will most
        likely be given next.
        """
        assigned = self._scheduler.assign()
        if self._in_lockstep:  # as one job, so that what runs together is the same in every run
            coming = self._coming() if assigned else []
            for place, numbers in by_place(assigned).items():
                self._submit(numbers, place, coming[place :: len(self._generators)])
        else:
            for number, place in assigned:
                self._submit([number], place)

    def _coming(self) -> list[Prompt]:
        if self._config.media.ahead_mb == 0:
            return []
        return self._source.peek(self._config.rollout.rollout_batch_size)

    def _add(self, prompt: Prompt, epoch: int) -> None:
        seed = prompt_seed(self._config.seed, prompt.id, epoch)
        # In lockstep all count the same: where one runs must not depend on what was before.
        tokens = 1 if self._in_lockstep else self._forecast.expected(prompt.id)
        self._tasks[self._scheduler.add(tokens)] = PromptTask(prompt, epoch, seed)

    def _submit(self, numbers: list[int], place: int, upcoming: Sequence[Prompt] = ()) -> None:
        self._jobs_begun += 1
        self._jobs[self._jobs_begun] = numbers
        tasks = [self._tasks[number] for number in numbers]
        self._generators.submit(self._jobs_begun, place, tasks, self._settings(), upcoming)

    def _gather(self, *, at_least_one: bool) -> None:
        """Take in what has ended; waits where `at_least_one` and nothing has."""
        for job in self._generators.wait(at_least_one=at_least_one):
            try:
                self._collect(job)
            except WorkerDied:
                self._recover(job)

    def _collect(self, job: int) -> None:
        if job in self._jobs:  # else it went with the generator of one before
            results = self._generators.collect(job)
            self._take_in(self._jobs.pop(job), results)

    def _take_in(self, numbers: Sequence[int], results: Results) -> None:
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, RolloutGroup):
                self._scheduler.finished(number)
                self._results[number] = result
                self._forecast.note(result)
            else:
                self._scheduler.failed(number)
                del self._tasks[number]
        self._count_skipped([result for result in results if isinstance(result, SkippedPrompt)])

    def _recover(self, job: int) -> None:
        """Replace a generator that died; what it had begun or made went with it."""
        (first, *_) = self._jobs[job]
        place = self._scheduler.place_of(first)
        lost = self._scheduler.lost(place)
        self._generators.restore(job)
        del self._jobs[job]
        self._forget(lost)
        self._scheduler.restored(place)
        self._give_out()

    def _cancel_rest(self) -> None:
        """Give up what was begun beside a batch that is complete."""
        rest = self._scheduler.cancel_rest()
        self._forget(rest)
        for number in rest:
            del self._tasks[number]
        self.account.cancelled += len(rest)

    def _forget(self, numbers: Sequence[int]) -> None:
        """Results and jobs of groups that are begun anew, or not at all, are of no use."""
        gone = set(numbers)
        for number in gone:
            self._results.pop(number, None)
        for job in [job for job, groups in self._jobs.items() if gone & set(groups)]:
            self._generators.cancel(job)
            del self._jobs[job]

    def _settings(self) -> GenerationSettings:
        rollout = self._config.rollout
        hot = FirstToken(rollout.hot_temperature, rollout.hot_top_k) if rollout.use_fire else None
        return GenerationSettings(
            rollout.generated_per_prompt, rollout.generate_max_len, rollout.temperature, hot
        )

    def _count_skipped(self, skipped: Sequence[SkippedPrompt]) -> None:
        self.account.failed += len(skipped)
        self._reasons += [each.reason for each in skipped]
        limit = self._config.data.max_bad_fraction
        if self.account.failed > limit * self.account.taken:
            named = "; ".join(self._reasons[:_REASONS_NAMED])
            raise UserError(
                f"{self.account.failed} of {self.account.taken} prompts could not be used, more "
                f"than the share {limit:g} that data.max_bad_fraction allows ({named})"
            )


def _room(config: RunConfig) -> int:
    """Prompts that a generator is given at once."""
    sequences = _LOADS_GIVEN * config.rollout.vllm_max_num_seqs
    return -(-sequences // config.rollout.generated_per_prompt)


def prompt_source(config: RunConfig, prompts: PromptSet) -> PromptSource:
    """The stream that a run takes its training prompts from."""
    data = config.data
    shares = mixture(prompts, data.prompt_weights)
    if data.prompt_sampling == "uniform":
        return PromptSource(prompts, config.seed, shares=shares)
    floor, memory = data.difficulty_floor, data.difficulty_memory
    pass_rates = PassRates(
        config.seed,
        floor=0.1 if floor is None else floor,
        memory=0.5 if memory is None else memory,
    )
    return PromptSource(prompts, config.seed, pass_rates, shares)


def pass_rates(
    groups: Sequence[RolloutGroup], rewards: Tensor, correct_from: float
) -> list[tuple[str, float]]:
    """Of each prompt with a reward, the share of samples that reach `correct_from`."""
    rates = []
    sizes = [len(group.samples) for group in groups]
    for group, own in zip(groups, rewards.split(sizes), strict=True):
        scored = own[own.isfinite()]
        if len(scored):
            share = (scored >= correct_from).double().mean().item()
            rates.append((group.task.prompt.id, share))
    return rates


def generate(
    generators: ActorGroup, tasks: Sequence[PromptTask], settings: GenerationSettings
) -> list[RolloutGroup | SkippedPrompt]:
    """Sample every task, shared out evenly over the generators; results in the order of `tasks`."""
    shares = [tasks[first :: len(generators)] for first in range(len(generators))]
    pending = [
        generators.send(place, "generate", share, settings)
        for place, share in enumerate(shares)
        if share
    ]
    results: list[RolloutGroup | SkippedPrompt | None] = [None] * len(tasks)
    for first, share in enumerate(generators.collect(pending)):
        results[first :: len(generators)] = share
    return [result for result in results if result is not None]
