"""The summary of a run: the facts a person asks for afterwards, computed from its step records."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression
from typing import TypedDict

from lightrft_ray.observe.jsonl import write_whole
from lightrft_ray.observe.names import PHASES, ROLES, Record

_REWARD_WINDOW = 10  # steps averaged at either end of the run
_GROWTH_STEPS = 50
_FEWEST_POINTS = 3  # of which a slope says anything
_PROMPT_FATES = ("taken", "trained", "filtered", "cancelled", "failed", "in_flight", "skipped")


class Summary(TypedDict):
    """The facts of a run; None is not measured. Times in seconds, memory in MB, rates per second.

    Rates and fractions are over the sum of the training steps' times, so neither the set-up nor
    the evaluation before training counts; the seconds by phase hold the latter.
    """

    algorithm: str
    steps: int
    samples: int
    eval_accuracy_before: float | None
    eval_accuracy_after: float | None
    reward_first: float | None
    reward_last: float | None
    seconds_total: float
    seconds_setup: float
    seconds_by_phase: dict[str, float]
    samples_per_second: float | None
    tokens_per_second: float | None
    publish_fraction_of_step: float | None
    observe_fraction: float | None
    weight_version: int | None
    canary_max_abs_logprob_diff: float | None
    peak_rss_mb_by_role: dict[str, float]
    driver_rss_growth_mb_per_50_steps: float | None
    prompts: dict[str, int]


def build_summary(
    records: Sequence[Record], *, algorithm: str, seconds_total: float, seconds_setup: float
) -> Summary:
    """Condense the records of a run, given in the order of their steps.

    The accuracy before training is that of step 0, the one after is the latest. The first and last
    rewards are means of ten steps, or of half the steps in a run of fewer than twenty, so that
    they share none. The driver's memory growth is its trend over the second half of the run, when
    caches and pools have reached their size. `observe_fraction` is what metrics and trajectories
    cost of the steps' time.
    """
    training = [record for record in records if record["step"] > 0]
    rewards = _values(training, "reward/mean")
    window = max(1, min(_REWARD_WINDOW, len(rewards) // 2))
    before = [record for record in records if record["step"] == 0]
    step_seconds = sum(_values(training, "time/step"))
    observed = _values(training, "time/observe")
    version = _last(records, "publish/version")
    samples = int(_last(records, "samples") or 0)
    return Summary(
        algorithm=algorithm,
        steps=int(training[-1]["step"]) if training else 0,
        samples=samples,
        eval_accuracy_before=_last(before, "eval/accuracy"),
        eval_accuracy_after=_last(records, "eval/accuracy"),
        reward_first=_ratio(sum(rewards[:window]), len(rewards[:window])),
        reward_last=_ratio(sum(rewards[-window:]), len(rewards[-window:])),
        seconds_total=seconds_total,
        seconds_setup=seconds_setup,
        seconds_by_phase={name: sum(_values(records, f"time/{name}")) for name in PHASES},
        samples_per_second=_ratio(samples, step_seconds),
        tokens_per_second=_ratio(sum(_values(training, "tokens")), step_seconds),
        publish_fraction_of_step=_ratio(sum(_values(training, "time/publish")), step_seconds),
        observe_fraction=_ratio(sum(observed), step_seconds) if observed else None,
        weight_version=None if version is None else int(version),
        canary_max_abs_logprob_diff=max(
            _values(records, "publish/canary_max_abs_diff"), default=None
        ),
        peak_rss_mb_by_role=_peak_memory(records),
        driver_rss_growth_mb_per_50_steps=_driver_growth(training),
        prompts={fate: int(_last(records, f"data/{fate}") or 0) for fate in _PROMPT_FATES},
    )


def write_summary(summary: Summary, path: Path) -> None:
    """Write `summary` as JSON, whole or not at all."""
    write_whole(path, json.dumps(summary, indent=2, allow_nan=False) + "\n")


def _values(records: Sequence[Record], name: str) -> list[float]:
    return [record[name] for record in records if math.isfinite(record.get(name, math.nan))]


def _last(records: Sequence[Record], name: str) -> float | None:
    values = _values(records, name)
    return values[-1] if values else None


def _ratio(amount: float, whole: float) -> float | None:
    return amount / whole if whole > 0 else None


def _peak_memory(records: Sequence[Record]) -> dict[str, float]:
    memory = {role: _values(records, f"memory/{role}_mb") for role in ROLES}
    return {role: max(values) for role, values in memory.items() if values}


def _driver_growth(training: Sequence[Record]) -> float | None:
    """Least-squares slope of the driver's memory over the second half of the steps, times 50."""
    half = training[len(training) // 2 :]
    points = [(r["step"], r["memory/driver_mb"]) for r in half if "memory/driver_mb" in r]
    if len(points) < _FEWEST_POINTS:
        return None
    steps, memory = zip(*points, strict=True)
    return linear_regression(steps, memory).slope * _GROWTH_STEPS
