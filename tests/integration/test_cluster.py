"""Runs on a cluster that somebody else started, with token authentication as Ray has it."""

import json
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
    run_program,
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
            **{self._set_address(): f"http://127.0.0.1:{self.dashboard}"},
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

    @staticmethod
    def _set_address() -> str:
        """The variable that the README has for the address of the job server."""
        return documented("export RAY_API_SERVER_ADDRESS=http://HEAD:8265")[1].partition("=")[0]

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

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program that RAY_ADDRESS leads to this cluster."""
        address = {"RAY_ADDRESS": f"127.0.0.1:{self.port}"}
        return run_program(words, self.environment | address)

    def job(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a `ray job` command."""
        return self.ray("job", verb, *words)

    def follow(self) -> subprocess.Popen[str]:
        """Follow the log of the job of the README."""
        return subprocess.Popen(
            documented("ray job logs --follow grpo-1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )

    def wait_until_up(self) -> None:
        """Return when a job has run: the agent that starts jobs comes after the job server."""
        deadline = time.monotonic() + 60
        while self.job("submit", "--", "true").returncode != 0:
            assert time.monotonic() < deadline, "the cluster did not come up"
            time.sleep(1)

    def actors(self) -> set[str]:
        """Classes of the actors that live, as Ray's state API has them."""
        words = documented("ray list actors --address $RAY_API_SERVER_ADDRESS --filter state=ALIVE")
        words = [self.environment.get(word.removeprefix("$"), word) for word in words]
        listed = json.loads(self.ray(*words[1:], "--format", "json").stdout)
        return {actor["class_name"] for actor in listed} - {"JobSupervisor"}

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


def test_the_doctor_looks_at_the_machine_and_the_cluster(cluster: Cluster) -> None:
    words = documented("launch/doctor.py --gpu")
    result = cluster.run([sys.executable, *words])
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    expected = [] if torch.cuda.is_available() else ["FAILED   gpus: no GPU"]
    assert failed == expected, result.stdout + result.stderr
    assert result.returncode == len(expected)
    for checked in ("vllm", "deepspeed", "versions"):
        assert f"ok       {checked}" in result.stdout


@pytest.mark.slow
def test_ray_address_names_the_cluster_to_run_on(cluster: Cluster, tmp_path: Path) -> None:
    """The run uses the cluster, and leaves it and nothing in it behind."""
    result = cluster.run(command(tmp_path / "run", num_steps=1))
    assert result.returncode == 0, result.stdout + result.stderr
    assert cluster.job("list").returncode == 0
    assert_all_gone(cluster.engines())


def _submit(
    cluster: Cluster, output_dir: Path, *more: str, **options: object
) -> subprocess.CompletedProcess[str]:
    """Submit the demo as the README says, with `more` words for Ray."""
    words = documented(
        'ray job submit --submission-id grpo-1 --metadata-json \'{"owner": "me"}\' --working-dir . '
        "--runtime-env cluster/runtime_env.yaml -- "
        "python launch/ppo_vl.py --config launch/configs/digits_grpo.yaml --resume auto "
        "--output_dir /runs/grpo-1"
    )
    place = words.index("--")
    # The shorter run that goes on must be a part of the longer one.
    job = _entry_point(output_dir, *words[place + 2 : -2], lr_scheduler="constant", **options)
    return cluster.ray(*words[1:place], *more, "--", *job)


def test_a_job_is_followed_stopped_and_submitted_again(cluster: Cluster, tmp_path: Path) -> None:
    """It ends in order, leaves a checkpoint and no worker; the next one goes on from there."""
    output = tmp_path / "run"
    submitted = _submit(cluster, output, "--no-wait", num_steps=500)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    following = cluster.follow()
    _wait_for_steps(output, 1)
    engines = cluster.engines()
    assert engines
    assert cluster.actors() == {"Generator", "PolicyLearner", "RewardWorker"}
    stopped = cluster.ray(*documented("ray job stop grpo-1")[1:])
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    log, _ = following.communicate(timeout=TIMEOUT)
    last = int(metrics(output)[-1]["step"])
    assert f"saved after step {last}" in " ".join(log.split())
    assert_all_gone(engines, within=20)
    jobs = cluster.job("list").stdout
    assert "'owner': 'me'" in jobs
    assert "JobStatus.STOPPED" in jobs
    # Ray knows each submission by an id of its own; the last one given counts.
    result = _submit(cluster, output, "--submission-id", "grpo-2", num_steps=last + 1)
    text = " ".join(result.stdout.split())
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"resumed from {output}/checkpoints/step_{last}" in text
    assert f"step {last + 1}/{last + 1}" in text
    assert "succeeded" in text
    assert [record["step"] for record in metrics(output)] == [*range(last + 2)]
    assert (output / "hf_checkpoint" / "model.safetensors").is_file()


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
