"""Whole runs that are killed or interrupted at any moment, and go on as if they had not been.

`make chaos`; LIGHTRFT_CHAOS_ROUNDS sets how often the driver is killed.
"""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.chaos.undisturbed import OPTIONS, ROUNDS, SEED, STEPS
from tests.integration.launching import (
    assert_all_gone,
    descendants,
    interrupt,
    launch,
    left_behind,
    metrics,
    processes_of,
    read_until,
    start,
)


@pytest.mark.timeout(3600)
def test_a_driver_that_is_killed_again_and_again_ends_with_the_same_metrics(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each time it has come a little further; in every other round in mid-write."""
    moments, before = random.Random(SEED), left_behind()
    folder, cut_short = tmp_path / "run", 0
    for number in range(ROUNDS):
        process = start(folder, resume="auto", **OPTIONS)
        _read_until_step(process, 1 + number * (STEPS - 4) // ROUNDS)
        if number % 2:
            _wait_for_a_checkpoint_to_be_begun(folder / "checkpoints")
        else:
            time.sleep(moments.uniform(0.0, 1.0))
        process.kill()
        process.communicate()
        assert_all_gone(processes_of(folder), within=30)
        cut_short += any((folder / "checkpoints").glob("unfinished_*"))
    with capsys.disabled():
        print(f"\ndriver killed {ROUNDS} times, {cut_short} of them while a checkpoint was written")
    result = launch(folder, resume="auto", **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert metrics(folder) == metrics(whole)
    assert cut_short > 0
    assert not any((folder / "checkpoints").glob("unfinished_*"))
    assert left_behind() <= before


def _read_until_step(process: subprocess.Popen[str], step: int) -> None:
    """Return when a step from `step` on is done; a resumed run may begin behind it."""
    while True:
        line = " ".join(read_until(process, f"/{STEPS} reward")[-1].split())
        if int(line.partition("step ")[2].partition("/")[0]) >= step:
            return


def _wait_for_a_checkpoint_to_be_begun(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(folder.glob("unfinished_*")):
        assert time.monotonic() < deadline, "no checkpoint was begun"
        time.sleep(0.001)


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


def test_the_second_signal_ends_a_run_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    before = left_behind()
    process = start(tmp_path / "run", **OPTIONS)
    read_until(process, f"step 2/{STEPS}")
    family = descendants(process)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    status, output = interrupt(process)
    assert status == 130, output
    assert time.monotonic() - began < 8
    assert_all_gone(family)
    assert left_behind() <= before
