"""The metrics file: what is written, what survives a killed run, and a tracker that fails."""

import json
import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.observe.metrics_log import MetricsLog, read_metrics
from lightrft_ray.observe.names import METRICS
from lightrft_ray.observe.trackers import OpenTracker, TrackedRun, trackers


def test_each_step_is_one_json_line_in_table_order(tmp_path: Path) -> None:
    scrambled = {"time/step": 1.5, "reward/mean": 0.25, "tokens": 412, "step": 1}
    with MetricsLog(tmp_path) as log:
        log.log(scrambled)
        log.log({"step": 2})
    first, second = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert first == '{"step": 1, "tokens": 412, "reward/mean": 0.25, "time/step": 1.5}'
    assert json.loads(second) == {"step": 2}


def test_a_line_is_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log({"step": 1, "tokens": 3})
        assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "tokens": 3}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null_and_read_as_nan(tmp_path: Path, value: float) -> None:
    with MetricsLog(tmp_path) as log:
        log.log({"step": 1, "policy/loss": value})
    path = tmp_path / "metrics.jsonl"
    assert path.read_text() == '{"step": 1, "policy/loss": null}\n'
    assert math.isnan(read_metrics(path)[0]["policy/loss"])


def test_an_undocumented_name_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        with pytest.raises(ValueError, match="policy/lose"):
            log.log({"step": 1, "policy/lose": 0.1})
        log.log({"step": 1})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'


def test_reading_leaves_out_a_last_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "rewa')
    assert read_metrics(path) == [{"step": 1}]


def test_a_resumed_run_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "rewa')
    with MetricsLog(tmp_path) as log:
        log.log({"step": 2, "tokens": 7})
    assert path.read_text() == '{"step": 1}\n{"step": 2, "tokens": 7}\n'


def test_steps_written_again_after_a_resume_replace_the_abandoned_ones(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(tmp_path) as log:
        for step in (0, 1, 2, 3, 4):
            log.log({"step": step, "tokens": 1})
    with MetricsLog(tmp_path) as log:
        log.log({"step": 3, "tokens": 2})
    records = read_metrics(path)
    assert [(r["step"], r.get("tokens")) for r in records] == [(0, 1), (1, 1), (2, 1), (3, 2)]


@pytest.mark.parametrize("line", ["not json", "[1, 2]", '{"loss": 1}'])
def test_a_foreign_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(UserError, match=r"line 2 of .*metrics\.jsonl"):
        read_metrics(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.jsonl"):
        read_metrics(tmp_path / "nowhere.jsonl")


def test_tensorboard_reads_back_every_scalar_at_its_step(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, _tensorboard(tmp_path)) as log:
        for step in range(3):
            log.log({"step": step, "reward/mean": step / 4, "tokens": step})
    events = _read_events(tmp_path)
    assert set(events.Tags()["scalars"]) == {"reward/mean", "tokens"}
    read = [(event.step, event.value) for event in events.Scalars("reward/mean")]
    assert read == [(0, 0.0), (1, 0.25), (2, 0.5)]


def test_tensorboard_forgets_the_steps_a_resumed_run_writes_again(tmp_path: Path) -> None:
    for first, value in ((0, 1.0), (2, 2.0)):
        with MetricsLog(tmp_path, _tensorboard(tmp_path)) as log:
            for step in range(first, 4):
                log.log({"step": step, "reward/mean": value})
    read = [(e.step, e.value) for e in _read_events(tmp_path).Scalars("reward/mean")]
    assert read == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0)]


def test_without_tensorboard_no_events_are_written(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log({"step": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_tracker_that_fails_is_reported_once_and_the_log_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where the event folder should be")
    reports: list[str] = []
    with MetricsLog(tmp_path, _tensorboard(tmp_path), reports.append) as log:
        for step in range(3):
            log.log({"step": step})
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 3
    assert len(reports) == 1
    assert "TensorBoard" in reports[0]


def test_a_record_of_every_documented_name_survives_the_round_trip(tmp_path: Path) -> None:
    record = {name: float(index) for index, name in enumerate(METRICS)}
    with MetricsLog(tmp_path) as log:
        log.log(record)
    assert read_metrics(tmp_path / "metrics.jsonl") == [record]


def _tensorboard(output_dir: Path) -> dict[str, OpenTracker]:
    run = TrackedRun("a-run", output_dir, {})
    return trackers(LoggingConfig(use_tensorboard=True), run)


def _read_events(output_dir: Path) -> EventAccumulator:
    events = EventAccumulator(str(output_dir / "tensorboard"))
    events.Reload()
    return events


def test_a_resumed_run_writes_later_steps_again(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        for step in range(4):
            log.log({"step": step, "reward/mean": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')
    with MetricsLog(tmp_path, after_step=1) as log:
        log.log({"step": 2, "reward/mean": 2.0})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["reward/mean"] for line in lines] == [1.0, 1.0, 2.0]


def test_a_run_that_goes_back_writes_later_steps_again(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, _tensorboard(tmp_path)) as log:
        for step in range(3):
            log.log({"step": step, "reward/mean": 1.0})
        log.rewind(0)
        log.log({"step": 1, "reward/mean": 2.0})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["reward/mean"] for line in lines] == [1.0, 2.0]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
