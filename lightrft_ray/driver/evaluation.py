"""Evaluation on held-out prompts: one or more sets, greedy unless told otherwise."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lightrft_ray.config import RunConfig
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.preflight import RunInputs
from lightrft_ray.driver.rewards import start_rewards, wait_rewards
from lightrft_ray.driver.rollout import generate
from lightrft_ray.driver.seeds import prompt_seed
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import GenerationSettings, PromptTask, RolloutGroup

Record = dict[str, float]

_PASSES = 0.5  # the reward from which on a sample has solved its prompt


@dataclass(frozen=True)
class _HeldOut:
    """A set, the prefix of its metrics and how it is sampled."""

    prefix: str
    tasks: Sequence[PromptTask]
    settings: GenerationSettings


@dataclass(frozen=True)
class PromptScores:
    """A prompt's label and the rewards of its samples, those that could be scored."""

    label: str | None
    rewards: Sequence[float]


class Evaluator:
    """Evaluates the generators' current weights. Nothing of it feeds back into training."""

    def __init__(
        self, config: RunConfig, inputs: RunInputs, generator: ActorGroup, reward: ActorGroup
    ) -> None:
        self._generator = generator
        self._reward = reward
        self._sets = _held_out_sets(config, inputs)

    @property
    def has_prompts(self) -> bool:
        """Whether there is anything to evaluate on."""
        return bool(self._sets)

    def evaluate(self) -> Record:
        """Generate and score all held-out prompts; metrics by name."""
        record: Record = {}
        for each in self._sets:
            scores = self._scores(each)
            metrics = accuracy_record(scores, with_pass=each.settings.n > 1)
            record |= {f"{each.prefix}/{name}": value for name, value in metrics.items()}
        return record

    def _scores(self, held_out: _HeldOut) -> list[PromptScores]:
        results = generate(self._generator, held_out.tasks, held_out.settings)
        groups = [group for group in results if isinstance(group, RolloutGroup)]
        if not groups:
            return []
        report = wait_rewards(self._reward, start_rewards(self._reward, groups))
        rewards = iter(report.scores)
        scores = []
        for group in groups:
            own = [next(rewards).score for _ in group.samples]
            known = [score for score in own if score is not None]
            scores.append(PromptScores(group.task.prompt.label, known))
        return scores


def accuracy_record(scores: Sequence[PromptScores], *, with_pass: bool) -> Record:
    """Mean reward over all scored samples (NaN without any), also by label where there are several.

    With a reward of 0 or 1 it is the accuracy. pass_at_k is the share of prompts, scored at all, of
    which a sample passes.
    """
    scored = [each for each in scores if each.rewards]
    record = {
        "accuracy": _mean(scored),
        "samples": float(sum(len(each.rewards) for each in scored)),
    }
    if with_pass and scored:
        passed = [max(each.rewards) >= _PASSES for each in scored]
        record["pass_at_k"] = sum(passed) / len(passed)
    by_label: dict[str, list[PromptScores]] = defaultdict(list)
    for each in scored:
        if each.label:
            by_label[re.sub(r"[^\w.-]", "_", each.label)].append(each)
    if len(by_label) > 1:
        record |= {f"accuracy/{label}": _mean(some) for label, some in by_label.items()}
    return record


def _mean(scores: Sequence[PromptScores]) -> float:
    rewards = [reward for each in scores for reward in each.rewards]
    return math.fsum(rewards) / len(rewards) if rewards else math.nan


def _held_out_sets(config: RunConfig, inputs: RunInputs) -> list[_HeldOut]:
    """The sets that have prompts, the unnamed one of `data.eval_data` first."""
    evaluation, training = config.evaluation, config.rollout.generate_max_len
    own = GenerationSettings(
        n=evaluation.eval_n_samples_per_prompt,
        max_tokens=evaluation.eval_generate_max_len or training,
        temperature=evaluation.eval_temperature,
    )
    sets = [_HeldOut("eval", _tasks(config, inputs.eval_prompts), own)]
    for name, chosen in evaluation.eval_sets.items():
        settings = GenerationSettings(
            n=chosen.n_samples_per_prompt,
            max_tokens=chosen.generate_max_len or training,
            temperature=chosen.temperature,
        )
        sets.append(_HeldOut(f"eval/{name}", _tasks(config, inputs.eval_sets[name]), settings))
    return [each for each in sets if each.tasks]


def _tasks(config: RunConfig, prompts: Sequence[Prompt]) -> list[PromptTask]:
    return [
        PromptTask(prompt, epoch=0, seed=prompt_seed(config.seed, prompt.id, 0))
        for prompt in prompts
    ]
