"""Skipped updates: kept to be looked at, counted in a row, and a reason to stop."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lightrft_ray.config import UserError
from lightrft_ray.driver import skipped_updates
from lightrft_ray.driver.skipped_updates import SkippedUpdates
from lightrft_ray.trainer.aggregation import Denominators
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.batches import DemonstrationBatch, RankBatch
from lightrft_ray.workers.deepspeed_engine import StepResult
from lightrft_ray.workers.messages import GroupTokens


def _batch(number: int) -> RankBatch:
    experience = ExperienceVL(
        torch.zeros(2, 0),
        advantages=torch.full((2, 3), float(number)),
        info={"token_weights": torch.full((2, 3), number / 2)},
    )
    group = GroupTokens(np.array([1, 2]), (np.array([3]), np.array([4, number])), None)
    return RankBatch((group,), experience, Denominators(3, 2), kl_coef=0.1, is_first=True)


def _results(*norms: float) -> list[StepResult]:
    return [StepResult(norm, 0.5, skipped=not math.isfinite(norm)) for norm in norms]


_NAN, _INF = math.nan, math.inf


def test_a_skipped_batch_is_written_as_plain_tensors(tmp_path: Path) -> None:
    watch = SkippedUpdates(tmp_path / "skipped", max_in_row=5)
    passes = [[_batch(1), _batch(2)], [_batch(3), _batch(4)]]
    watch.check("policy", 7, passes, _results(1.0, _NAN))
    (path,) = (tmp_path / "skipped").iterdir()
    assert path.name == "policy-7-2.pt"
    contents = torch.load(path, weights_only=True)
    assert contents["result"]["skipped"] is True
    assert contents["denominators"]["n_tokens"] == 3
    ranks = contents["ranks"]
    assert [rank["experience"]["advantages"][0, 0].item() for rank in ranks] == [2, 4]
    assert [rank["experience"]["token_weights"][0, 0].item() for rank in ranks] == [1, 2]
    assert ranks[1]["prompt_ids"][0].tolist() == [1, 2]
    assert [response.tolist() for response in ranks[1]["responses"][0]] == [[3], [4, 4]]
    assert all("demonstrations" not in rank for rank in ranks)


def test_demonstrations_are_a_part_of_a_skipped_batch(tmp_path: Path) -> None:
    taught = DemonstrationBatch((GroupTokens(np.array([5]), (np.array([6, 7]),), None),), 2)
    batch = replace(_batch(1), demonstrations=taught)
    SkippedUpdates(tmp_path, max_in_row=2).check("policy", 1, [[batch]], _results(_NAN))
    contents = torch.load(tmp_path / "policy-1-1.pt", weights_only=True)
    (demonstrations,) = [rank["demonstrations"] for rank in contents["ranks"]]
    assert demonstrations["prompt_ids"][0].tolist() == [5]
    assert demonstrations["responses"][0][0].tolist() == [6, 7]


def test_a_healthy_run_leaves_no_folder(tmp_path: Path) -> None:
    watch = SkippedUpdates(tmp_path / "skipped", max_in_row=1)
    watch.check("policy", 1, [[_batch(1)]], _results(2.0))
    assert not (tmp_path / "skipped").exists()


def test_too_many_in_a_row_stop_the_run_with_the_cause(tmp_path: Path) -> None:
    watch = SkippedUpdates(tmp_path, max_in_row=3)
    passes = [[_batch(1)] * 3]
    watch.check("policy", 1, passes, _results(_NAN, _NAN, 1.0))
    watch.check("value", 2, passes, _results(_INF, _INF, 1.0))  # another role's do not count
    watch.check("policy", 2, passes, _results(1.0, _NAN, _NAN))
    with pytest.raises(UserError) as stop:
        watch.check("policy", 3, passes, _results(_INF, 1.0, 1.0))
    message = str(stop.value)
    assert "\n" not in message
    for part in ("3 policy updates", "step 3", "inf", "0.5", str(tmp_path), "actor_learning_rate"):
        assert part in message


@pytest.mark.parametrize(("loss_is_finite", "cause"), [(True, "gradient"), (False, "loss")])
def test_the_cause_is_the_loss_or_the_gradient(
    tmp_path: Path, loss_is_finite: bool, cause: str
) -> None:
    watch = SkippedUpdates(tmp_path, max_in_row=1)
    result = StepResult(_INF, 0.5, skipped=True, loss_is_finite=loss_is_finite)
    with pytest.raises(UserError, match=f"the last one's {cause}, at gradient norm inf"):
        watch.check("value", 1, [[_batch(1)]], [result])


def test_rare_faults_do_not_fill_the_disk(tmp_path: Path) -> None:
    watch = SkippedUpdates(tmp_path, max_in_row=2)
    for step in range(skipped_updates._MOST_KEPT + 5):
        watch.check("value", step, [[_batch(1)] * 2], _results(_NAN, 1.0))
    assert len(list(tmp_path.iterdir())) == skipped_updates._MOST_KEPT
