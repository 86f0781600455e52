"""Weights & Biases offline, MLflow in a folder, and the dashboard of Prometheus' metrics."""

import json
import math
import re
import time
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.load import load_config
from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.observe.metrics_log import MetricsLog
from lightrft_ray.observe.names import FAMILIES, METRICS
from lightrft_ray.observe.prometheus import dashboard, gauge_name
from lightrft_ray.observe.trackers import TrackedRun, check_trackers, trackers

_CLUSTER = Path(__file__).parents[3] / "cluster"
_RECORDS = [
    {"step": 1, "reward/mean": 0.25, "policy/loss": math.nan},
    {"step": 2, "reward/mean": 0.5, "reward/component/exact_match": 1.0},
]


def _log(folder: Path, settings: LoggingConfig) -> list[str]:
    reports: list[str] = []
    run = TrackedRun("20260101-000000-abc", folder, {"seed": 1, "trainer": {"num_steps": 2}})
    with MetricsLog(folder, trackers(settings, run), reports.append) as log:
        for record in _RECORDS:
            log.log(record)
    return reports


def test_mlflow_has_each_number_at_its_step_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    settings = LoggingConfig(use_tensorboard=False, use_mlflow=True, mlflow_experiment="digits")
    assert _log(tmp_path, settings) == []
    (tmp_path / "metrics.jsonl").unlink()
    assert _log(tmp_path, settings) == []
    client = MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["lightrft.run_id"] == "20260101-000000-abc"
    assert run.data.params == {"seed": "1", "trainer.num_steps": "2"}
    assert run.info.status == "FINISHED"
    assert "policy/loss" not in run.data.metrics
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert {(each.step, each.value) for each in history} == {(1, 0.25), (2, 0.5)}


def test_wandb_offline_keeps_every_record_under_the_id_of_the_run(tmp_path: Path) -> None:
    settings = LoggingConfig(
        use_tensorboard=False, use_wandb=True, wandb_mode="offline", wandb_project="digits"
    )
    assert _log(tmp_path, settings) == []
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert file.name == "run-20260101-000000-abc.wandb"
    deadline = time.monotonic() + 20
    while len(history := _wandb_history(file)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)  # the service's own process writes the file
    assert [record["step"] for record in history] == [1, 2]
    assert [record["reward/mean"] for record in history] == [0.25, 0.5]


def _wandb_history(file: Path) -> list[dict[str, float]]:
    store = DataStore()
    store.open_for_scan(str(file))
    history = []
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            names = ["/".join(item.nested_key) or item.key for item in items]
            values = [json.loads(item.value_json) for item in items]
            history.append(dict(zip(names, values, strict=True)))
    return history


def test_wandb_without_a_key_is_told_of_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    (report,) = _log(tmp_path, LoggingConfig(use_tensorboard=False, use_wandb=True))
    assert "WANDB_API_KEY" in report
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_tracker_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    check_trackers(LoggingConfig(use_mlflow=True, use_wandb=True))
    monkeypatch.setattr("lightrft_ray.observe.trackers.find_spec", lambda name: None)
    check_trackers(LoggingConfig())
    for name in ("wandb", "mlflow"):
        with pytest.raises(UserError, match=rf"lightrft-ray\[{name}\]"):
            check_trackers(LoggingConfig(**{f"use_{name}": True}))


def test_an_api_key_in_the_settings_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="WANDB_API_KEY") as refusal:
        load_config(None, [("use_wandb", "q1w2e3r4t5z6")])
    assert "q1w2e3r4t5z6" not in str(refusal.value)
    with pytest.raises(UserError, match="MLFLOW_TRACKING_PASSWORD") as refusal:
        load_config(
            None, [("use_mlflow", "true"), ("mlflow_tracking_uri", "https://me:hunter22@host")]
        )
    assert "hunter22" not in str(refusal.value)


def test_a_password_in_any_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match=r"checkpoint\.ckpt_path holds a password") as refusal:
        load_config(None, [("ckpt_path", "sftp://me:hunter22@host/checkpoints")])
    assert "hunter22" not in str(refusal.value)
    load_config(None, [("ckpt_path", "s3://bucket/checkpoints")])


@pytest.mark.parametrize(
    ("name", "value", "switch"),
    [
        ("wandb_project", "digits", "use_wandb"),
        ("mlflow_experiment", "digits", "use_mlflow"),
    ],
)
def test_settings_of_a_tracker_that_is_off_are_refused(name: str, value: str, switch: str) -> None:
    with pytest.raises(UserError, match=rf"{name}.*{switch}"):
        load_config(None, [(name, value)])


def test_the_dashboard_is_the_one_of_the_code() -> None:
    """To renew it, write `lightrft_ray.observe.prometheus.dashboard()` in its place."""
    assert (_CLUSTER / "grafana_dashboard.json").read_text(encoding="utf-8") == dashboard()


def test_the_dashboard_shows_every_documented_metric_and_no_other() -> None:
    panels = json.loads(dashboard())["panels"]
    queries = [each["targets"][0]["expr"] for each in panels if each["type"] == "timeseries"]
    shown = [re.match(r"ray_(\w+)\{", query).group(1) for query in queries]  # type: ignore[union-attr]
    gauges = [gauge_name(name) for name in METRICS | FAMILIES]
    assert shown and sorted(shown) == sorted(set(gauges))
    assert len(set(gauges)) == len(gauges)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) for name in gauges)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places)
