"""The numbers of a step's record; `observe.names` explains each of them."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import psutil
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.placement import role_demands
from lightrft_ray.driver.workers import Workers
from lightrft_ray.rewards.remote.statistics import RemoteFigures
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.masked import masked_mean
from lightrft_ray.trainer.metric_sums import Metrics, merge_metrics, metric_values
from lightrft_ray.trainer.moments import Moments
from lightrft_ray.trainer.selection import informative_groups
from lightrft_ray.workers.deepspeed_engine import StepResult

Record = dict[str, float]

# Metric of the objectives -> name in the record.
_POLICY_METRICS = {
    "approx_kl_k3": "policy/approx_kl",
    "clip_frac_dual": "policy/clip_fraction_dual",
    "ptx_loss": "policy/ptx_loss",
    "aux_loss": "policy/aux_loss",
    "entropy": "policy/entropy",
}
_MISMATCH_METRICS = {
    "log_prob_gap_max": "rollout/log_prob_gap_max",
    "mismatch_k1": "rollout/mismatch_k1",
    "mismatch_k3": "rollout/mismatch_k3",
    "mismatch_ess": "rollout/mismatch_ess",
    "raw_token_ratio_max": "rollout/ratio_max",
    "hit_fraction": "rollout/corrected_fraction",
    "weight_mean": "rollout/correction_weight_mean",
}
_SHAPING_METRICS = {
    "length_shaping": "reward/length_shaping_mean",
    "reward_clipped": "reward/clipped_fraction",
    "overlong_penalty": "reward/overlong_penalty_mean",
}
_VALUE_METRICS = {"clip_fraction": "value/clip_fraction"}


def batch_record(batch: RolloutBatch) -> Record:
    """Of the rollouts."""
    samples = batch.all_samples
    lengths = batch.samples.response_length
    return {
        "epoch": batch.groups[0].task.epoch,
        "tokens": int(lengths.sum()),
        "rollout/response_length_mean": float(lengths.double().mean()),
        "rollout/response_length_min": int(lengths.min()),
        "rollout/response_length_max": int(lengths.max()),
        "rollout/prompt_length_mean": fmean(len(group.prompt_ids) for group in batch.groups),
        "rollout/truncated_fraction": sum(s.is_truncated for s in samples) / len(samples),
    }


def experience_record(experience: ExperienceVL) -> Record:
    """Of rewards, advantages, KL and values."""
    mask, info = experience.action_mask, experience.info
    advantages, kl = experience.advantages, experience.kl
    if mask is None or info is None or advantages is None or kl is None:
        raise ValueError("the experience is not assembled")
    rewards = info["reward"][info["reward"].isfinite()].double()
    used = advantages[mask].double()
    record = {
        "reward/mean": float(rewards.mean()),
        "reward/std": float(rewards.std()) if len(rewards) > 1 else 0.0,
        **_extremes(rewards),
        "reward/informative_groups": _informative_share(info["reward"], info["group_ids"]),
        "reward/failed": int((~info["reward"].isfinite()).sum()),
        "advantage/mean": float(used.mean()),
        "advantage/std": float(used.std()) if len(used) > 1 else 0.0,
    }
    record |= _component_record(info.get("reward_components", ()))
    if experience.base_action_log_probs is not None:
        record["kl/reference_mean"] = float(masked_mean(kl, mask))
    if experience.values is not None and experience.returns is not None:
        values, returns = experience.values[mask], experience.returns[mask]
        record |= {
            "value/mean": float(values.double().mean()),
            "value/return_mean": float(returns.double().mean()),
            "value/explained_variance": _explained_variance(values, returns),
        }
    return record


def _extremes(rewards: Tensor) -> Record:
    if len(rewards) == 0:
        return {}
    return {"reward/min": float(rewards.min()), "reward/max": float(rewards.max())}


def _component_record(components: Sequence[Mapping[str, float]]) -> Record:
    """The mean of each part of the rewards, over the samples that have it."""
    names = dict.fromkeys(name for each in components for name in each)
    values = {name: [each[name] for each in components if name in each] for name in names}
    return {f"reward/component/{name}": fmean(of_name) for name, of_name in values.items()}


def source_record(figures: Mapping[str, RemoteFigures]) -> Record:
    """Of the sources of rewards: failures, and times in milliseconds, since the start."""
    record: Record = {}
    for name, each in figures.items():
        record[f"reward/failed_fraction/{name}"] = each.failed_fraction
        for percentile in ("p50", "p95", "p99"):
            seconds = getattr(each, f"latency_{percentile}")
            if seconds is not None:
                record[f"reward/latency/{name}/{percentile}"] = 1000 * seconds
    return record


def _informative_share(rewards: Tensor, group_ids: Tensor) -> float:
    """Prompt groups whose rewards differ, of all."""
    scored = rewards.isfinite()
    kept = informative_groups(rewards[scored], group_ids[scored], keep_singletons=False)
    return len(kept.group_ids) / max(len(group_ids.unique()), 1)


def _explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 − Var(returns − values) / Var(returns); 0 where the returns do not vary."""
    variance = Moments.of(returns).variance
    if variance == 0:
        return 0.0
    return 1 - Moments.of(returns - values).variance / variance


def update_record(role: str, by_rank: Sequence[tuple[Metrics, list[StepResult]]]) -> Record:
    """Of the updates of a role ("policy" or "value"), merged over its ranks."""
    merged: Metrics = {}
    for metrics, _ in by_rank:
        merged = merge_metrics(merged, metrics)
    values, results = metric_values(merged), by_rank[0][1]
    applied = [result.grad_norm for result in results if not result.skipped]
    record = {
        f"{role}/loss": values["loss"],
        f"{role}/grad_norm": sum(applied) / len(applied) if applied else float("nan"),
        f"{role}/learning_rate": results[-1].learning_rate,
        f"{role}/skipped_updates": sum(result.skipped for result in results),
    }
    if role == "value":
        return record | {name: values[key] for key, name in _VALUE_METRICS.items()}
    record |= _named(merged, _POLICY_METRICS)
    record |= _named(merged, _MISMATCH_METRICS)
    if "clip_frac_low" in values:  # some losses clip nothing
        record["policy/clip_fraction"] = values["clip_frac_low"] + values["clip_frac_high"]
    return record


def assembly_record(metrics: Metrics) -> Record:
    """Of making the experience: shaping, and the generators' log-probs against the learner's."""
    return _named(metrics, _SHAPING_METRICS | _MISMATCH_METRICS)


def _named(metrics: Metrics, names: Mapping[str, str]) -> Record:
    """Values of those of `metrics` that `names` has a record's name for."""
    return {name: metrics[key].value().item() for key, name in names.items() if key in metrics}


def memory_record(workers: Workers | None) -> Record:
    """Resident memory: the driver's, and that of every role where `workers` is given."""
    own = {"memory/driver_mb": psutil.Process().memory_info().rss / 1e6}
    if workers is None:
        return own
    return own | {f"memory/{role}_mb": mb for role, mb in workers.resident_mb().items()}


def speed_record(record: Record, config: RunConfig) -> Record:
    """Rates over the step's wall clock, and over that of its phases by device.

    A device is a GPU, or a worker process of a run without any.
    """
    if "tokens" not in record:
        return {}
    seconds, tokens = record["time/step"], record["tokens"]
    rates = {
        "speed/samples_per_second": config.samples_per_step / seconds,
        "speed/tokens_per_second": tokens / seconds,
        "speed/tokens_per_second_per_device": tokens / seconds / device_count(config),
    }
    learned = tokens * config.trainer.max_epochs
    phases = {"train": (learned, config.learner_ranks)}
    if "rollout/batches_drawn" not in record:  # else more tokens were generated than are known
        phases["generate"] = (tokens, _generator_devices(config))
    for phase, (amount, devices) in phases.items():
        if record.get(f"time/{phase}", 0.0) > 0:
            rate = amount / record[f"time/{phase}"] / devices
            rates[f"speed/{phase}_tokens_per_second_per_device"] = rate
    return rates


def device_count(config: RunConfig) -> int:
    """GPUs of all roles, or the processes of a run without any."""
    demands = role_demands(config)
    gpus = sum(demand.total("GPU") for demand in demands)
    return math.ceil(gpus) if gpus else sum(len(demand.bundles) for demand in demands)


def _generator_devices(config: RunConfig) -> int:
    rollout = config.rollout
    per_engine = rollout.vllm_tensor_parallel_size if config.placement.vllm_use_gpu else 1
    return rollout.vllm_num_engines * per_engine
