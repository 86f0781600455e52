"""Gauges on Ray's own Prometheus endpoint, and logs of workers under the run's id."""

import json
import time
import urllib.request
from pathlib import Path

import ray

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.ray_gauges import RayGauges
from lightrft_ray.observe.structured_log import worker_variables
from lightrft_ray.workers.reward import RewardWorker

_DEADLINE = 60  # s: Ray exports every few seconds


def _until(text: str, where: str) -> str:
    """What the endpoint of the local node says, once it holds `text`."""
    deadline = time.monotonic() + _DEADLINE
    page = ""
    while time.monotonic() < deadline:
        with urllib.request.urlopen(where, timeout=10) as answer:
            page = answer.read().decode()
        if text in page:
            return page
        time.sleep(0.5)
    raise AssertionError(f"{text} was never exported")


def test_metrics_reach_rays_prometheus_endpoint(local_ray: None) -> None:
    gauges = RayGauges("run-7")
    gauges.write({"step": 3, "reward/mean": 0.25, "policy/loss": float("nan")})
    gauges.write({"step": 4, "reward/component/exact_match": 1.0})
    (node,) = ray.nodes()
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    page = _until("ray_lightrft_reward_component", address)
    lines = [line for line in page.splitlines() if line.startswith("ray_lightrft_reward_mean{")]
    (line,) = lines
    assert 'run="run-7"' in line
    assert line.endswith(" 0.25")
    assert "ray_lightrft_policy_loss{" not in page


def test_workers_log_under_the_run_that_started_them(local_ray: None, config: RunConfig) -> None:
    variables = worker_variables("run-7", "reward/0", "info")
    actor = RewardWorker.options(runtime_env={"env_vars": variables}).remote(config, {})
    ray.get(actor.ready.remote(), timeout=120)
    done = ray.get(actor.work_done.remote(), timeout=30)
    assert done.spans == ()
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())  # type: ignore[attr-defined]
    lines = [
        line
        for path in logs.glob("worker-*.err")
        for line in path.read_text(errors="replace").splitlines()
        if '"run_id": "run-7"' in line
    ]
    assert lines
    assert json.loads(lines[0])["role"] == "reward/0"
    ray.kill(actor)
