"""Several rewards as one: each label of the data has its own weighted sum of them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from lightrft_ray.config import RewardConfig, UserError
from lightrft_ray.rewards.functions import READY_MADE
from lightrft_ray.rewards.sample import RewardSample, RewardSource, SampleScore, failed

DEFAULT = "default"
ONLY = "reward_fn"
"""The name of a run's reward where it has no recipes."""

Weights = Mapping[str, float]


def check_names(reward: RewardConfig) -> None:
    """UserError for a recipe with an unknown reward, and for a name that is ready-made already."""
    declared = [*reward.functions, *reward.remotes, *reward.models]
    for name in declared:
        if name in READY_MADE or name == ONLY:
            raise UserError(
                f"reward: the name {name} is taken, by a ready-made reward or by reward_fn; "
                "choose another"
            )
    known = [*declared, *READY_MADE]
    for label, recipe in reward.recipes.items():
        for name in recipe:
            if name not in known:
                raise UserError(
                    f"reward.recipes {label}: there is no reward {name}; there are "
                    f"{', '.join(known)}, and more can be named in reward.functions"
                )


def check_labels(reward: RewardConfig, labels: Iterable[str]) -> None:
    """UserError for a label of the data that no recipe is for."""
    if not reward.recipes or DEFAULT in reward.recipes:
        return
    for label in labels:
        if label not in reward.recipes:
            raise UserError(
                f"reward.recipes has no entry for the label {label!r} of the data: add one, or "
                f"one for {DEFAULT}"
            )


class WeightedRewards:
    """The sum of the rewards that a sample's label asks for, times their weights.

    Scores of tokens and steps are summed in the same way. `components` of an answer has the score
    of each reward by name, without its weight, and what it said of its own parts. A sample that one
    of its rewards failed on has no score.
    """

    def __init__(self, sources: Mapping[str, RewardSource], recipes: Mapping[str, Weights]) -> None:
        self._sources = sources
        self._recipes = recipes

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples, of all rewards side by side."""
        recipes = [self._recipe(sample.label) for sample in samples]
        answers: list[dict[str, SampleScore]] = [{} for _ in samples]
        parts = await asyncio.gather(*(self._ask(name, samples, recipes) for name in self._sources))
        for name, part in zip(self._sources, parts, strict=True):
            for row, score in part.items():
                answers[row][name] = score
        return [
            _sum(sample.sample_id, recipe, answer)
            for sample, recipe, answer in zip(samples, recipes, answers, strict=True)
        ]

    async def close(self) -> None:
        """Close all sources."""
        await asyncio.gather(*(source.close() for source in self._sources.values()))

    def _recipe(self, label: str) -> Weights:
        return self._recipes[label if label in self._recipes else DEFAULT]

    async def _ask(
        self, name: str, samples: Sequence[RewardSample], recipes: Sequence[Weights]
    ) -> dict[int, SampleScore]:
        """One reward's answers, by row, for the samples that want it."""
        rows = [row for row, recipe in enumerate(recipes) if name in recipe]
        if not rows:
            return {}
        scores = await self._sources[name].score([samples[row] for row in rows])
        return dict(zip(rows, scores, strict=True))


def _sum(sample_id: str, recipe: Weights, answers: Mapping[str, SampleScore]) -> SampleScore:
    faults = {name: answer.error for name, answer in answers.items() if answer.error}
    if faults:
        named = [f"{name}: {error}" for name, error in faults.items()]
        return failed(sample_id, "; ".join(faults.values() if len(answers) == 1 else named))
    ordered = [(recipe[name], answers[name]) for name in recipe]
    try:
        return SampleScore(
            sample_id,
            sum(weight * (answer.score or 0.0) for weight, answer in ordered),
            _components(recipe, answers),
            _weighted("token_scores", [(w, a.token_scores) for w, a in ordered]),
            _weighted("step_scores", [(w, a.step_scores) for w, a in ordered]),
        )
    except ValueError as error:
        return failed(sample_id, str(error))


def _components(recipe: Weights, answers: Mapping[str, SampleScore]) -> dict[str, float]:
    named: dict[str, float] = {}
    for name in recipe:
        named[name] = answers[name].score or 0.0
        named |= {f"{name}/{part}": value for part, value in answers[name].components.items()}
    return named


def _weighted(
    what: str, weighted: Sequence[tuple[float, Sequence[float] | None]]
) -> list[float] | None:
    """The weighted sum, token by token or step by step; None where no reward gives any."""
    given = [(weight, scores) for weight, scores in weighted if scores is not None]
    if not given:
        return None
    counts = {len(scores) for _, scores in given}
    if len(counts) > 1:
        named = " and ".join(map(str, sorted(counts)))
        raise ValueError(f"rewards give {named} {what} for one response")
    return [sum(w * scores[i] for w, scores in given) for i in range(counts.pop())]
