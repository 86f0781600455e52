"""The summary of a run: each fact against a small run worked out by hand."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from lightrft_ray.observe.names import Record
from lightrft_ray.observe.summary import Summary, build_summary, write_summary
from lightrft_ray.observe.summary_text import render_summary


def test_facts_of_a_run_of_forty_steps() -> None:
    summary = _summarise(_run(40))
    assert summary["algorithm"] == "grpo"
    assert summary["steps"] == 40
    assert summary["samples"] == 40 * 8
    assert (summary["eval_accuracy_before"], summary["eval_accuracy_after"]) == (0.25, 0.75)
    assert summary["reward_first"] == pytest.approx(5.5)  # the mean of 1 … 10
    assert summary["reward_last"] == pytest.approx(35.5)  # the mean of 31 … 40
    assert (summary["seconds_total"], summary["seconds_setup"]) == (100.0, 15.0)
    assert summary["samples_per_second"] == pytest.approx(8 / 2)
    assert summary["tokens_per_second"] == pytest.approx(50 / 2)
    assert summary["publish_fraction_of_step"] == pytest.approx(0.25)
    assert summary["observe_fraction"] == pytest.approx(0.01 / 2)
    assert summary["weight_version"] == 41
    assert summary["canary_max_abs_logprob_diff"] == 4e-6
    assert summary["peak_rss_mb_by_role"] == {"driver": 540.0, "learner": 900.0}
    assert summary["prompts"] == {
        "taken": 84,
        "trained": 80,
        "filtered": 1,
        "cancelled": 0,
        "failed": 1,
        "in_flight": 2,
        "skipped": 3,
    }


def test_phases_hold_the_evaluation_before_training_and_rates_do_not() -> None:
    phases = _summarise(_run(4))["seconds_by_phase"]
    assert phases == {
        "generate": pytest.approx(4.0),
        "score": 0,
        "assemble": 0,
        "train": pytest.approx(2.0),
        "publish": pytest.approx(2.0),
        "eval": pytest.approx(3.0),
        "save": 0,
    }


@pytest.mark.parametrize(
    ("steps", "first", "last"),
    [(1, 1.0, 1.0), (3, 1.0, 3.0), (6, 2.0, 5.0), (20, 5.5, 15.5)],
)
def test_first_and_last_rewards_share_no_step(steps: int, first: float, last: float) -> None:
    summary = _summarise(_run(steps))
    assert (summary["reward_first"], summary["reward_last"]) == pytest.approx((first, last))


def test_driver_growth_is_the_trend_of_the_second_half() -> None:
    """What caches and pools take in the first half is no growth; a jitter is none either."""
    records = _run(40)
    settled = [r | {"memory/driver_mb": 600.0 + (r["step"] % 2)} for r in records[21:]]
    growth = _summarise([*records[:21], *settled])["driver_rss_growth_mb_per_50_steps"]
    assert growth == pytest.approx(0, abs=0.5)
    assert _summarise(records)["driver_rss_growth_mb_per_50_steps"] == pytest.approx(50)


def test_memory_measured_now_and_then_is_enough() -> None:
    records = [
        {name: x for name, x in record.items() if name != "memory/driver_mb" or step % 5 == 0}
        for step, record in enumerate(_run(42))
    ]
    assert _summarise(records)["driver_rss_growth_mb_per_50_steps"] == pytest.approx(50)


def test_a_run_stopped_before_its_first_step_has_a_summary() -> None:
    for records in ([], _run(0)):
        summary = _summarise(records)
        assert summary["steps"] == 0
        assert summary["reward_first"] is None
        assert summary["samples_per_second"] is None
        assert summary["publish_fraction_of_step"] is None
        assert summary["observe_fraction"] is None
        assert summary["driver_rss_growth_mb_per_50_steps"] is None


def test_accuracy_before_is_that_of_step_zero_alone() -> None:
    summary = _summarise([{"step": 1}, {"step": 2, "eval/accuracy": 0.5}])
    assert summary["eval_accuracy_before"] is None
    assert summary["eval_accuracy_after"] == 0.5


def test_numbers_that_are_not_finite_are_left_out() -> None:
    records = [{"step": s, "reward/mean": x} for s, x in enumerate([math.nan, 1.0, math.nan, 3.0])]
    summary = _summarise(records)
    assert (summary["reward_first"], summary["reward_last"]) == (1.0, 3.0)


def test_the_summary_is_written_whole_over_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("an older summary")
    summary = _summarise(_run(4))
    write_summary(summary, path)
    assert json.loads(path.read_text()) == summary
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_older_summary(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("an older summary")
    broken = _summarise(_run(4))
    broken["seconds_total"] = math.nan
    with pytest.raises(ValueError, match="JSON"):
        write_summary(broken, path)
    assert path.read_text() == "an older summary"


def test_the_text_holds_the_facts() -> None:
    text = render_summary(_summarise(_run(40)))
    headline, *facts = text.splitlines()
    assert headline == "grpo: 40 steps in 1m 40s (set-up 15s)"
    assert [" ".join(fact.split()) for fact in facts] == [
        "held-out accuracy 0.250 → 0.750",
        "reward 5.500 → 35.500",
        "throughput 320 samples, 4.0 samples/s, 25 tokens/s",
        "seconds by phase generate 40.0, score 0.0, assemble 0.0, train 20.0, publish 20.0, "
        "eval 3.0, save 0.0",
        "weights version 41, publishing took 25.0% of the steps, canary gap 4.0e-06 nats",
        "prompts taken 84, trained 80, filtered 1, cancelled 0, failed 1, in_flight 2, skipped 3",
        "peak memory, MB driver 540, learner 900",
        "observation 0.50% of the steps",
        "driver growth +50.0 MB in 50 steps",
    ]


def test_the_text_of_an_empty_run_has_dashes() -> None:
    text = render_summary(_summarise([]))
    assert "held-out accuracy   - → -" in text
    assert "peak memory, MB     -" in text
    assert "None" not in text
    assert "nan" not in text


def _run(steps: int) -> list[Record]:
    """Step 0 and `steps` steps of 2 s; the reward and the driver's growth in MB are the step."""
    start: Record = {
        "step": 0,
        "eval/accuracy": 0.25,
        "time/eval": 2.0,
        "time/step": 7.0,
        "publish/version": 1,
        "publish/canary_max_abs_diff": 4e-6,
        "memory/driver_mb": 500.0,
        "memory/learner_mb": 900.0,
    }
    return [start, *(_step(step, steps) for step in range(1, steps + 1))]


def _step(step: int, steps: int) -> Record:
    record = {
        "step": step,
        "samples": 8 * step,
        "tokens": 50,
        "time/observe": 0.01,
        "reward/mean": float(step),
        "publish/version": step + 1,
        "publish/canary_max_abs_diff": 1e-6,
        "time/generate": 1.0,
        "time/train": 0.5,
        "time/publish": 0.5,
        "time/step": 2.0,
        "memory/driver_mb": 500.0 + step,
        "memory/learner_mb": 800.0,
        "data/taken": 2 * step + 4,
        "data/trained": 2 * step,
        "data/filtered": 1,
        "data/failed": 1,
        "data/in_flight": 2,
        "data/skipped": 3,
    }
    return record | ({"eval/accuracy": 0.75, "time/eval": 1.0} if step == steps else {})


def _summarise(records: Sequence[Record]) -> Summary:
    return build_summary(records, algorithm="grpo", seconds_total=100.0, seconds_setup=15.0)
