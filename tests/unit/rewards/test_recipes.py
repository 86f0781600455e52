"""Weighted sums of rewards by label."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lightrft_ray.config import RewardConfig, UserError, WorkerDied
from lightrft_ray.rewards.measured import MeasuredSource
from lightrft_ray.rewards.opening import open_rewards
from lightrft_ray.rewards.recipes import WeightedRewards, check_labels, check_names
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed


class _Fixed:
    """Gives what it was told to, by sample id; fails what it was told nothing of."""

    def __init__(self, answers: Mapping[str, SampleScore]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        self.asked += [each.sample_id for each in samples]
        return [
            self._answers.get(each.sample_id, failed(each.sample_id, "down")) for each in samples
        ]

    async def close(self) -> None:
        self.asked = []


def _sample(name: str, label: str, response: str = "1") -> RewardSample:
    return RewardSample(name, "p", (), response, (1, 2), "1", label)


def _all(score: float, **more: Sequence[float]) -> _Fixed:
    return _Fixed({name: SampleScore(name, score, **more) for name in "abc"})  # type: ignore[arg-type]


def test_each_label_has_its_own_weights() -> None:
    one, two = _all(1.0), _all(10.0)
    whole = WeightedRewards(
        {"one": one, "two": two}, {"default": {"one": 2.0}, "maths": {"one": 1.0, "two": -0.5}}
    )
    scores = asyncio.run(whole.score([_sample("a", "maths"), _sample("b", ""), _sample("c", "x")]))
    assert [each.score for each in scores] == [-4, 2, 2]
    assert scores[0].components == {"one": 1, "two": 10}
    assert (one.asked, two.asked) == (["a", "b", "c"], ["a"])


def test_a_sample_that_one_reward_failed_on_has_no_score() -> None:
    broken = _Fixed({"a": SampleScore("a", 1.0)})
    whole = WeightedRewards({"x": _all(1.0), "y": broken}, {"default": {"x": 1.0, "y": 1.0}})
    good, bad = asyncio.run(whole.score([_sample("a", ""), _sample("b", "")]))
    assert good.score == 2
    assert (bad.score, bad.error) == (None, "y: down")


def test_scores_of_tokens_and_steps_are_weighted_too() -> None:
    whole = WeightedRewards(
        {
            "x": _all(1.0, token_scores=[1.0, 2.0]),
            "y": _all(1.0, token_scores=[10.0, 0.0], step_scores=[4.0]),
        },
        {"default": {"x": 1.0, "y": 0.5}},
    )
    (score,) = asyncio.run(whole.score([_sample("a", "")]))
    assert (score.token_scores, score.step_scores) == ([6, 2], [2])


def test_process_scores_of_different_lengths_fail_their_sample() -> None:
    sources = {"x": _all(1.0, step_scores=[1.0]), "y": _all(1.0, step_scores=[1.0, 2.0])}
    whole = WeightedRewards(sources, {"default": {"x": 1.0, "y": 1.0}})
    (score,) = asyncio.run(whole.score([_sample("a", "")]))
    assert score.error == "rewards give 1 and 2 step_scores for one response"


def test_opened_rewards_of_functions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reward_func(responses, bonus=0):\n    return [bonus]\n")
    reward = RewardConfig(
        recipes={"default": {"exact_match": 1, "mine": 2}},
        functions={"mine": {"function": str(tmp_path / "mine.py"), "arguments": {"bonus": 3}}},  # type: ignore[dict-item]
    )

    async def score() -> SampleScore:
        opened = await open_rewards(reward, {})
        assert not opened.wants_media
        (score,) = await opened.whole.score([_sample("a", "")])
        assert opened.by_name["mine"].figures().samples == 1
        await opened.whole.close()
        return score

    result = asyncio.run(score())
    assert (result.score, result.components) == (7, {"exact_match": 1, "mine": 3})


def test_a_source_that_raises_or_is_late_fails_its_samples() -> None:
    class Late(_Fixed):
        async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
            await asyncio.sleep(60)
            return []

    class Broken(_Fixed):
        async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
            raise RuntimeError("no such luck")

    late, broken = MeasuredSource(Late({}), 0.05), MeasuredSource(Broken({}), 1)
    (score,) = asyncio.run(late.score([_sample("a", "")]))
    assert score.error == "not scored within 0.05 s"
    (score,) = asyncio.run(broken.score([_sample("a", "")]))
    assert score.error == "RuntimeError: no such luck"
    assert (broken.figures().failed_fraction, broken.figures().last_error) == (1, score.error)


def test_a_worker_that_died_fails_no_sample() -> None:
    """It is replaced, and the samples are sent again."""

    class Lost(_Fixed):
        async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
            raise WorkerDied("a worker of a reward model died")

    source = MeasuredSource(Lost({}), 1)
    with pytest.raises(WorkerDied):
        asyncio.run(source.score([_sample("a", "")]))
    assert source.figures().samples == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"recipes": {"default": {"exactmatch": 1}}}, "default: there is no reward exactmatch"),
        (
            {
                "recipes": {"default": {"anls": 1}},
                "functions": {"anls": {"function": "token_f1"}},
            },
            "the name anls is taken",
        ),
    ],
)
def test_names_are_checked_before_the_run(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(UserError) as caught:
        check_names(RewardConfig.model_validate(settings))
    assert reason in str(caught.value)


def test_a_label_without_a_recipe_is_refused_before_the_run() -> None:
    reward = RewardConfig(recipes={"maths": {"exact_match": 1}})
    check_labels(reward, ["maths"])
    check_labels(RewardConfig(), ["anything"])
    with pytest.raises(UserError, match="no entry for the label 'ocr' of the data"):
        check_labels(reward, ["maths", "ocr"])
