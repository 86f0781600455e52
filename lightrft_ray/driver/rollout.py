"""The rollout manager: prompts in, finished groups out, every prompt accounted for."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.data.difficulty import PassRates
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.prompt_source import PromptSource, mixture
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.seeds import prompt_seed
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import (
    FirstToken,
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)

_REASONS_NAMED = 3


@dataclass
class PromptAccount:
    """Where the prompts went that were taken: taken = trained + filtered + failed + in_flight.

    `failed` prompts could not be used (a data fault); `filtered` ones had no sample with a reward,
    or were left out by dynamic sampling.
    """

    taken: int = 0
    trained: int = 0
    filtered: int = 0
    failed: int = 0

    @property
    def in_flight(self) -> int:
        """Prompts that are somewhere between being taken and their end."""
        return self.taken - self.trained - self.filtered - self.failed

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        counts = {f"data/{field.name}": getattr(self, field.name) for field in fields(self)}
        return {**counts, "data/in_flight": self.in_flight}


class RolloutManager:
    """Gives out prompts to the generators and gathers their groups."""

    def __init__(self, config: RunConfig, source: PromptSource, generators: ActorGroup) -> None:
        self._config = config
        self._source = source
        self._generators = generators
        self._reasons: list[str] = []
        self.account = PromptAccount()

    def next_batch(self) -> list[RolloutGroup]:
        """`rollout_batch_size` groups; a prompt that cannot be used is replaced by the next one.

        Raises UserError once more prompts than `max_bad_fraction` could not be used.
        """
        wanted = self._config.rollout.rollout_batch_size
        groups: list[RolloutGroup] = []
        while len(groups) < wanted:
            taken = self._source.take(wanted - len(groups))
            self.account.taken += len(taken)
            tasks = [self._task(prompt, epoch) for prompt, epoch in taken]
            results = generate(self._generators, tasks, self._settings())
            groups += [result for result in results if isinstance(result, RolloutGroup)]
            self._count_skipped([r for r in results if isinstance(r, SkippedPrompt)])
        return groups

    def note_rewards(self, groups: Sequence[RolloutGroup], rewards: Tensor) -> None:
        """Tell which prompts were solved; `rewards` (B,) are of all their samples, NaN failed."""
        for name, rate in pass_rates(groups, rewards, self._config.reward.correct_from):
            self._source.note(name, rate)

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        return self.account.as_record() | self._source.as_record()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain values."""
        return {
            "source": self._source.state_dict(),
            "account": asdict(self.account),
            "reasons": self._reasons[:_REASONS_NAMED],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self._source.load_state_dict(state["source"])
        self.account = PromptAccount(**state["account"])
        self._reasons = list(state["reasons"])

    def _task(self, prompt: Prompt, epoch: int) -> PromptTask:
        return PromptTask(prompt, epoch, prompt_seed(self._config.seed, prompt.id, epoch))

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
