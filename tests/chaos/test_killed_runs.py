"""Runs whose processes are killed or stopped at any moment, on the real stack.

Minutes each: `make chaos`. LIGHTRFT_CHAOS_ROUNDS sets how often the driver is killed.
"""

import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.launching import (
    assert_all_gone,
    called,
    descendants,
    interrupt,
    launch,
    metrics,
    read_until,
    start,
)

ROUNDS = int(os.environ.get("LIGHTRFT_CHAOS_ROUNDS", "3"))
STEPS = 20
OPTIONS = {
    "num_steps": STEPS,
    "save_steps": 2,
    "advantage_estimator": "gae",
    "init_kl_coef": 0.05,
    "kl_estimator": "k1",
    "use_kl_loss": "false",
    "reward_running_norm": "standardize",
    "lr_scheduler": "cosine",
    "train_batch_size": 16,
    "restart_delay": 0.1,
    "heartbeat_timeout": 20.0,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = launch(folder, **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_a_driver_that_is_killed_again_and_again_ends_with_the_same_metrics(
    whole: Path, tmp_path: Path
) -> None:
    """At random moments, those in which a checkpoint is being written included."""
    moments = random.Random(0)
    for _ in range(ROUNDS):
        process = start(tmp_path / "run", resume="auto", **OPTIONS)
        read_until(process, f"/{STEPS} reward")
        family = descendants(process)
        time.sleep(moments.uniform(0.0, 8.0))
        process.kill()
        process.communicate()
        assert_all_gone(family, within=30)
    result = launch(tmp_path / "run", resume="auto", **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert metrics(tmp_path / "run") == metrics(whole)


def test_an_interrupted_run_saves_and_goes_on(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path / "run", **OPTIONS)
    read_until(process, f"step 3/{STEPS}")
    family = descendants(process)
    status, output = interrupt(process, signal.SIGTERM)
    assert status == 130, output
    assert_all_gone(family)
    last = int(metrics(tmp_path / "run")[-1]["step"])
    assert f"saved after step {last}" in output
    result = launch(tmp_path / "run", resume="auto", **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"resumed from {tmp_path}/run/checkpoints/step_{last}" in result.stdout
    assert metrics(tmp_path / "run") == metrics(whole)


@pytest.mark.parametrize(
    ("role", "number"),
    [
        ("Generator", signal.SIGKILL),
        ("Generator", signal.SIGSTOP),
        ("ReferenceWorker", signal.SIGKILL),
        ("RewardWorker", signal.SIGKILL),
        ("CriticLearner", signal.SIGKILL),
        ("PolicyLearner", signal.SIGKILL),
    ],
)
def test_a_run_outlives_each_of_its_workers(
    whole: Path, tmp_path: Path, role: str, number: signal.Signals
) -> None:
    process = start(tmp_path / "run", **OPTIONS)
    read_until(process, f"step 5/{STEPS}")
    _worker(process.pid, role).send_signal(number)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert metrics(tmp_path / "run") == metrics(whole)


def test_the_second_signal_ends_a_run_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    shared_memory = set(Path("/dev/shm").iterdir())
    process = start(tmp_path / "run", **OPTIONS)
    read_until(process, f"step 2/{STEPS}")
    family = descendants(process)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    status, output = interrupt(process)
    assert status == 130, output
    assert time.monotonic() - began < 8
    assert_all_gone(family)
    assert set(Path("/dev/shm").iterdir()) <= shared_memory


def _worker(run: int, role: str) -> psutil.Process:
    (worker,) = called(psutil.Process(run).children(recursive=True), f"ray::{role}")
    return worker
