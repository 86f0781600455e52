"""What a step's record says of the parts of rewards and of where they come from."""

import pytest
import torch

from lightrft_ray.driver.records import experience_record, source_record
from lightrft_ray.observe.names import check_record
from lightrft_ray.rewards.remote.statistics import RemoteStatistics
from lightrft_ray.rewards.sample import SampleScore, failed
from lightrft_ray.trainer.experience_types import ExperienceVL


def test_each_part_has_its_mean_over_the_samples_that_have_it() -> None:
    experience = ExperienceVL(
        torch.zeros(3, 2),
        advantages=torch.ones(3, 1),
        kl=torch.zeros(3, 1),
        action_mask=torch.ones(3, 1).bool(),  # type: ignore[arg-type]
        info={
            "reward": torch.tensor([1.0, 2.0, torch.nan]),
            "group_ids": torch.tensor([0, 0, 1]),
            "reward_components": [{"a": 1.0, "a/length": 3.0}, {"a": 2.0, "b": -1.0}, {}],
        },
    )
    record = experience_record(experience)
    parts = {name: record[name] for name in record if name.startswith("reward/component/")}
    assert parts == {
        "reward/component/a": 1.5,
        "reward/component/a/length": 3.0,
        "reward/component/b": -1.0,
    }
    check_record({"step": 1, **record})


def test_each_source_has_its_failures_and_times() -> None:
    statistics = RemoteStatistics()
    assert source_record({"a": statistics.figures()}) == {"reward/failed_fraction/a": 0.0}
    statistics.count_scores([SampleScore("x", 1.0), failed("y", "down")])
    for milliseconds in range(1, 101):
        statistics.count_request(milliseconds / 1000, None)
    record = source_record({"a": statistics.figures()})
    assert record == pytest.approx(
        {
            "reward/failed_fraction/a": 0.5,
            "reward/latency/a/p50": 50,
            "reward/latency/a/p95": 95,
            "reward/latency/a/p99": 99,
        }
    )
    check_record({"step": 1, **record})
