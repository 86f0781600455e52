"""The numbers of a step's record."""

import math
import warnings

import pytest
import torch
from rollouts import rollout_group, sample

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.records import (
    _MISMATCH_METRICS,
    _POLICY_METRICS,
    _SHAPING_METRICS,
    _VALUE_METRICS,
    _explained_variance,
    assembly_record,
    batch_record,
    device_count,
    experience_record,
    memory_record,
    speed_record,
    update_record,
)
from lightrft_ray.observe.names import METRICS
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import Maximum, Mean, Metrics
from lightrft_ray.workers.deepspeed_engine import StepResult

_CONFIG = RunConfig.model_validate(
    {
        "rollout": {"rollout_batch_size": 2, "n_samples_per_prompt": 4},
        "trainer": {"train_batch_size": 8, "micro_train_batch_size": 8},
    }
)
_MASK = torch.tensor([[True, True], [True, False], [False, False]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 4.0], 1.0),
        ([11.0, 12.0, 14.0], 1.0),  # a constant error explains the variance all the same
        ([3.0, 3.0, 3.0], 0.0),
        ([-1.0, -2.0, -4.0], -3.0),
    ],
)
def test_explained_variance(values: list[float], expected: float) -> None:
    returns = torch.tensor([1.0, 2.0, 4.0])
    assert _explained_variance(torch.tensor(values), returns) == pytest.approx(expected)


@pytest.mark.parametrize("returns", [[], [1.0], [2.0, 2.0]], ids=str)
def test_returns_without_spread_have_no_variance_to_explain(returns: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = torch.arange(float(len(returns)))
        assert _explained_variance(values, torch.tensor(returns)) == 0.0


def _experience(**changes: object) -> ExperienceVL:
    tensors = {
        "sequences": torch.zeros(3, 4),
        "advantages": torch.tensor([[1.0, 2.0], [6.0, 99.0], [99.0, 99.0]]),
        "kl": torch.tensor([[0.1, 0.2], [0.6, 99.0], [99.0, 99.0]]),
        "action_mask": _MASK,
        "info": {
            "reward": torch.tensor([1.0, 0.5, math.nan]),
            "group_ids": torch.tensor([0, 0, 1]),
        },
    }
    return ExperienceVL(**{**tensors, **changes})


def test_statistics_leave_out_failed_samples_and_padding() -> None:
    record = experience_record(_experience())
    assert record == pytest.approx(
        {
            "reward/mean": 0.75,
            "reward/std": math.sqrt(0.125),
            "reward/min": 0.5,
            "reward/max": 1.0,
            "reward/informative_groups": 0.5,
            "reward/failed": 1,
            "advantage/mean": 3.0,
            "advantage/std": math.sqrt(7),
        }
    )


def test_reference_and_critic_add_their_numbers() -> None:
    returns = torch.tensor([[1.0, 2.0], [4.0, 99.0], [99.0, 99.0]])
    record = experience_record(
        _experience(base_action_log_probs=torch.zeros(3, 2), values=returns - 1, returns=returns)
    )
    assert record["kl/reference_mean"] == pytest.approx(0.3)
    assert record["value/explained_variance"] == pytest.approx(1.0)
    assert record["value/return_mean"] == pytest.approx(7 / 3)  # over tokens, not over samples
    assert record["value/mean"] == pytest.approx(4 / 3)
    assert set(record) <= set(METRICS)


def test_rollouts_are_described() -> None:
    groups = [
        rollout_group("a", [1], [sample([1, 2, 3], is_truncated=True), sample([4])]),
        rollout_group("b", [2], [sample([5, 6]), sample([7, 8])]),
    ]
    record = batch_record(RolloutBatch.of(groups, 0))
    assert record == {
        "epoch": 2,
        "tokens": 8,
        "rollout/response_length_mean": 2.0,
        "rollout/response_length_min": 1,
        "rollout/response_length_max": 3,
        "rollout/prompt_length_mean": 1.0,
        "rollout/truncated_fraction": 0.25,
    }


def _measured(total: float, count: int) -> Metrics:
    mean = Mean(torch.tensor(total), torch.tensor(count))
    names = ("loss", "approx_kl_k3", "entropy", "clip_frac_low", "clip_frac_high", "clip_fraction")
    return {**dict.fromkeys(names, mean), "log_prob_gap_max": Maximum(torch.tensor(total))}


def _results(*norms: float) -> list[StepResult]:
    return [StepResult(norm, 0.1 * i, not math.isfinite(norm)) for i, norm in enumerate(norms)]


def test_metrics_of_ranks_are_weighted_by_what_they_counted() -> None:
    """Not a mean of means: (2 + 1) / (10 + 2)."""
    by_rank = [(_measured(2.0, 10), _results(1.0, 3.0)), (_measured(1.0, 2), _results(1.0, 3.0))]
    record = update_record("policy", by_rank)
    assert record["policy/loss"] == pytest.approx(0.25)
    assert record["policy/clip_fraction"] == pytest.approx(0.5)
    assert record["rollout/log_prob_gap_max"] == 2.0
    assert record["policy/grad_norm"] == 2.0
    assert record["policy/learning_rate"] == pytest.approx(0.1)
    assert record["policy/skipped_updates"] == 0
    assert set(record) <= set(METRICS)
    value = update_record("value", by_rank)
    assert value["value/skipped_updates"] == 0
    assert value["value/clip_fraction"] == pytest.approx(0.25)
    assert value["value/learning_rate"] == pytest.approx(0.1)
    assert set(value) <= set(METRICS)


def test_a_loss_without_a_clip_has_no_clip_fraction() -> None:
    measured = {name: one for name, one in _measured(1.0, 2).items() if "clip" not in name}
    assert "policy/clip_fraction" not in update_record("policy", [(measured, _results(1.0))])
    measured["clip_frac_dual"] = Mean(torch.tensor(1.0), torch.tensor(4))
    record = update_record("policy", [(measured, _results(1.0))])
    assert record["policy/clip_fraction_dual"] == 0.25
    assert set(record) <= set(METRICS)


def test_what_is_added_to_the_policy_loss_is_recorded() -> None:
    measured = _measured(1.0, 2) | {
        "ptx_loss": Mean(torch.tensor(3.0), torch.tensor(2)),
        "aux_loss": Mean(torch.tensor(8.0), torch.tensor(4)),
    }
    record = update_record("policy", [(measured, _results(1.0))])
    assert record["policy/ptx_loss"] == 1.5
    assert record["policy/aux_loss"] == 2.0


def test_shaping_and_mismatch_are_recorded_where_there_are_any() -> None:
    assert assembly_record({}) == {}
    mean = Mean(torch.tensor(1.0), torch.tensor(4))
    record = assembly_record({"reward_clipped": mean, "mismatch_k1": mean, "ess": mean})
    assert record == {"reward/clipped_fraction": 0.25, "rollout/mismatch_k1": 0.25}


def test_every_name_of_a_record_is_explained() -> None:
    tables = (_POLICY_METRICS, _VALUE_METRICS, _MISMATCH_METRICS, _SHAPING_METRICS)
    assert {name for table in tables for name in table.values()} <= set(METRICS)


def test_skipped_updates_have_no_gradient_norm() -> None:
    record = update_record("policy", [(_measured(1.0, 1), _results(math.nan, 3.0, math.inf))])
    assert record["policy/skipped_updates"] == 2
    assert record["policy/grad_norm"] == 3.0
    none = update_record("policy", [(_measured(1.0, 1), _results(math.nan))])
    assert math.isnan(none["policy/grad_norm"])


def test_speed_is_over_the_whole_step() -> None:
    assert speed_record({"tokens": 100, "time/step": 4.0}, _CONFIG) == {
        "speed/samples_per_second": 2.0,
        "speed/tokens_per_second": 25.0,
        "speed/tokens_per_second_per_device": 25 / 3,  # learner, generator and reward
    }
    assert speed_record({"time/step": 4.0}, _CONFIG) == {}


def test_speed_by_device_is_over_the_time_of_the_phase() -> None:
    placement = {"actor_num_gpus_per_node": 2, "vllm_use_gpu": True}
    rollout = {"vllm_num_engines": 2, "vllm_tensor_parallel_size": 2}
    config = _CONFIG.model_copy(
        update={
            "placement": _CONFIG.placement.model_copy(update=placement),
            "rollout": _CONFIG.rollout.model_copy(update=rollout),
            "trainer": _CONFIG.trainer.model_copy(update={"max_epochs": 3}),
        }
    )
    assert device_count(config) == 6
    times = {"time/step": 10.0, "time/generate": 4.0, "time/train": 5.0}
    record = speed_record({"tokens": 600, **times}, config)
    assert record["speed/tokens_per_second_per_device"] == pytest.approx(10)
    assert record["speed/generate_tokens_per_second_per_device"] == pytest.approx(600 / 4 / 4)
    assert record["speed/train_tokens_per_second_per_device"] == pytest.approx(1800 / 5 / 2)
    drawn = speed_record({"tokens": 600, "rollout/batches_drawn": 2, **times}, config)
    assert "speed/generate_tokens_per_second_per_device" not in drawn
    assert set(record) <= set(METRICS)


def test_the_drivers_memory() -> None:
    record = memory_record(None)
    assert record.keys() == {"memory/driver_mb"}
    assert 10 < record["memory/driver_mb"] < 100_000
