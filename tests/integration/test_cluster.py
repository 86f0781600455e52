"""Runs on a cluster that somebody else started, with token authentication as Ray has it."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from tests.integration.launching import (
    ROOT,
    TIMEOUT,
    assert_all_gone,
    called,
    command,
    environment,
    metrics,
)
from tests.readme import documented

BIN = Path(sys.executable).parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """A head node with a dashboard, as `ray start --head` gives it."""

    def __init__(self, folder: Path) -> None:
        self.port, self.dashboard = _free_port(), _free_port()
        self.environment = environment(
            PATH=f"{BIN}:{os.environ['PATH']}",
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(16),
        )
        rest = [
            f"--temp-dir={folder}",
            f"--port={self.port}",
            f"--dashboard-port={self.dashboard}",
            # Its usual port may be taken by another Ray on this machine: then no job would start.
            f"--dashboard-agent-listen-port={_free_port()}",
        ]
        self.process = subprocess.Popen(
            [*documented("ray start --head"), "--block", "--num-cpus=2", *rest],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )

    def ray(self, *words: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
        """Run a `ray` command from the repository."""
        return subprocess.run(
            ["ray", *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=ROOT,
            env=self.environment,
        )

    def job(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a `ray job` command."""
        return self.ray("job", verb, "--address", f"http://127.0.0.1:{self.dashboard}", *words)

    def wait_until_up(self) -> None:
        """Return when a job has run: the agent that starts jobs comes after the job server."""
        deadline = time.monotonic() + 60
        while self.job("submit", "--", "true").returncode != 0:
            assert time.monotonic() < deadline, "the cluster did not come up"
            time.sleep(1)

    def engines(self) -> list[psutil.Process]:
        """The processes of vLLM engines that run in the cluster."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return called(family, "VLLM")

    def stop(self) -> None:
        """End all nodes' processes."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        self.process.wait(timeout=60)
        assert_all_gone(family, within=20)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node; its folder's name is short, as sockets' paths must be."""
    started = Cluster(tmp_path_factory.mktemp("r"))
    started.wait_until_up()
    yield started
    started.stop()


def _entry_point(output_dir: Path, *documented: str, **options: object) -> list[str]:
    """The command after `ray job submit … --`; the interpreter is the cluster's."""
    _, _, *rest = command(output_dir, *documented, **options)
    return ["python", "launch/ppo_vl.py", *rest]


def test_a_submitted_job_trains(cluster: Cluster, tmp_path: Path) -> None:
    submit = documented(
        "ray job submit --address http://HEAD:8265 --working-dir . -- "
        "python launch/ppo_vl.py --config launch/configs/digits_grpo.yaml"
    )
    place = submit.index("launch/ppo_vl.py")
    words = _entry_point(tmp_path / "run", *submit[place:], num_steps=2)
    address = f"http://127.0.0.1:{cluster.dashboard}"
    submit[submit.index("http://HEAD:8265")] = address
    result = cluster.ray(*submit[1 : place - 1], *words)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "step 2/2" in " ".join(result.stdout.split())
    assert "succeeded" in result.stdout
    assert len(metrics(tmp_path / "run")) == 3
    assert (tmp_path / "run" / "hf_checkpoint" / "model.safetensors").is_file()


def test_the_doctor_looks_at_the_machine_and_the_cluster(cluster: Cluster) -> None:
    words = documented("launch/doctor.py --gpu")
    result = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        cwd=ROOT,
        env=cluster.environment | {"RAY_ADDRESS": f"127.0.0.1:{cluster.port}"},
    )
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    expected = [] if torch.cuda.is_available() else ["FAILED   gpus: no GPU"]
    assert failed == expected, result.stdout + result.stderr
    assert result.returncode == len(expected)
    for checked in ("vllm", "deepspeed", "versions"):
        assert f"ok       {checked}" in result.stdout


@pytest.mark.slow
def test_ray_address_names_the_cluster_to_run_on(cluster: Cluster, tmp_path: Path) -> None:
    """The run uses the cluster, and leaves it and nothing in it behind."""
    result = subprocess.run(
        command(tmp_path / "run", num_steps=1),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        cwd=ROOT,
        env=cluster.environment | {"RAY_ADDRESS": f"127.0.0.1:{cluster.port}"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert cluster.job("list").returncode == 0
    assert_all_gone(cluster.engines())


def test_a_stopped_job_leaves_no_worker(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "run"
    submitted = cluster.job(
        "submit",
        "--no-wait",
        "--submission-id=to-be-stopped",
        "--working-dir",
        ".",
        "--",
        *_entry_point(output, num_steps=500),
    )
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    _wait_for_steps(output, 1)
    engines = cluster.engines()
    assert engines
    stopped = cluster.job("stop", "to-be-stopped")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert_all_gone(engines, within=20)


def _wait_for_steps(output: Path, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not (output / "metrics.jsonl").is_file() or len(metrics(output)) <= count:
        assert time.monotonic() < deadline, "the job did not get as far"
        time.sleep(0.5)


def test_no_cluster_at_the_address_is_said_at_once(tmp_path: Path) -> None:
    address = f"127.0.0.1:{_free_port()}"
    start = time.monotonic()
    result = subprocess.run(
        command(tmp_path / "run"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        cwd=ROOT,
        env=environment(RAY_ADDRESS=address),
    )
    assert time.monotonic() - start < 60
    assert result.returncode == 2, result.stdout + result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert f"RAY_ADDRESS={address}" in errors[0]
