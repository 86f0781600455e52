"""Functions in processes: what hangs or dies costs its own sample alone, and nothing is left."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.function_process import FunctionSpec
from lightrft_ray.rewards.function_source import FunctionPool, InlineFunction
from lightrft_ray.rewards.sample import RewardSample, SampleScore

_MISBEHAVING = """
import os, re, time

def reward_func(responses):
    for response in responses:
        if response == "hang":
            re.match("(a+)+$", "a" * 60 + "b")  # holds the interpreter for ages
        if response == "die":
            os.kill(os.getpid(), 9)
        if response == "raise":
            raise ValueError("no such luck")
    print("a function may print")
    return [float(os.getpid()) if response == "pid" else 0.5 for response in responses]
"""


def _samples(*responses: str) -> list[RewardSample]:
    return [
        RewardSample(f"s{index}", "p", (), response, (1, 2), "r", "l")
        for index, response in enumerate(responses)
    ]


def _spec(folder: Path, content: str = _MISBEHAVING) -> FunctionSpec:
    (folder / "reward.py").write_text(content)
    return FunctionSpec(str(folder / "reward.py"))


def _pool(spec: FunctionSpec, processes: int = 1, total_timeout: float = 60) -> FunctionPool:
    return FunctionPool(spec, processes=processes, call_timeout=0.5, total_timeout=total_timeout)


def _score(pool: FunctionPool, samples: Sequence[RewardSample]) -> list[SampleScore]:
    async def score() -> list[SampleScore]:
        await pool.start()
        try:
            return await pool.score(samples)
        finally:
            await pool.close()

    return asyncio.run(score())


def test_only_the_guilty_go_without_a_reward(tmp_path: Path) -> None:
    scores = _score(_pool(_spec(tmp_path)), _samples("a", "hang", "b", "die", "raise", "c"))
    assert [each.sample_id for each in scores] == [f"s{index}" for index in range(6)]
    assert [each.score for each in scores] == [0.5, None, 0.5, None, None, 0.5]
    assert [each.error for each in scores if each.error] == [
        "the reward function's process did not answer within 0.5 s and was killed",
        "the reward function's process died (exit status -9)",
        "ValueError: no such luck",
    ]


def test_processes_share_the_samples_and_are_gone_afterwards(tmp_path: Path) -> None:
    scores = _score(_pool(_spec(tmp_path), processes=2), _samples(*["pid"] * 5))
    used = {int(each.score or 0) for each in scores}
    assert len(used) == 2
    assert os.getpid() not in used
    assert not any(psutil.pid_exists(pid) for pid in used)


def test_what_is_not_scored_in_the_whole_time_is_no_0(tmp_path: Path) -> None:
    begun = time.monotonic()
    scores = _score(_pool(_spec(tmp_path), total_timeout=1.5), _samples(*["hang"] * 20))
    assert all(each.score is None for each in scores)
    assert scores[-1].error == "not scored within 1.5 s"
    assert time.monotonic() - begun < 15


def test_no_samples(tmp_path: Path) -> None:
    assert asyncio.run(_pool(_spec(tmp_path)).score([])) == []


def test_a_file_that_cannot_be_loaded_is_refused_at_the_start(tmp_path: Path) -> None:
    spec = _spec(tmp_path, "reward_func = 3\n")
    with pytest.raises(UserError, match=r"reward\.py: that is no function"):
        _score(_pool(spec), _samples("a"))


def test_details_reach_the_scores(tmp_path: Path) -> None:
    content = (
        "async def reward_func(response, response_token_ids, scale=1.0):\n"
        "    return {'score': scale, 'components': {'length': len(response)},\n"
        "            'token_scores': [0.5 for _ in response_token_ids]}\n"
    )
    spec = FunctionSpec(_spec(tmp_path, content).name, {"scale": 2.0})
    (score,) = _score(_pool(spec), _samples("abc"))
    assert (score.score, score.components, score.token_scores) == (2, {"length": 3}, [0.5, 0.5])


def test_a_function_that_cannot_hang_is_called_here() -> None:
    scores = asyncio.run(InlineFunction(FunctionSpec("exact_match")).score(_samples("r", "x")))
    assert [each.score for each in scores] == [1, 0]
