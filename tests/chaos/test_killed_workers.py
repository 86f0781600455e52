"""One run whose processes, of all roles, are killed or stopped again and again at random moments.

`make chaos`; LIGHTRFT_CHAOS_KILLS and LIGHTRFT_CHAOS_STEPS set how often, and in how many steps.
"""

import json
import random
import re
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.chaos.undisturbed import HEARTBEAT_TIMEOUT, KILLS, OPTIONS, SEED, STEPS
from tests.integration.launching import (
    all_metrics,
    assert_all_gone,
    called,
    left_behind,
    metrics,
    processes_of,
    start,
)

# What is killed, by a part of its command line, and the role whose worker it is of.
VICTIMS = {
    "ray::Generator": "generator",
    "VLLM::EngineCore": "generator",
    "VLLM::Worker": "generator",
    "ray::ReferenceWorker": "reference",
    "ray::RewardWorker": "reward",
    "ray::CriticLearner": "critic",
    "ray::PolicyLearner": "learner",
}
FOUND_DEAD_WITHIN = 5.0  # s
_STOPPED_OF_ALL = 0.25
_RECOVERY_TIMEOUT = 300.0  # s
_STEP = re.compile(r"step\s+(\d+)/")


@dataclass(frozen=True)
class Blow:
    """A process hit, and the seconds until that was reported and until the next step was done."""

    victim: str
    number: signal.Signals
    detection: float
    recovery: float


class _Output:
    """The lines of a run with the time at which each came."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[tuple[float, str]] = []
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.monotonic(), line.strip()))

    def wait_for(self, pattern: str, since: float = 0.0) -> float:
        """When the first line after `since` came that matches."""
        deadline = time.monotonic() + _RECOVERY_TIMEOUT
        while time.monotonic() < deadline:
            for when, line in list(self.lines):
                if when >= since and re.search(pattern, line):
                    return when
            assert self._process.poll() is None, self.text()
            time.sleep(0.02)
        raise AssertionError(f"{pattern!r} did not come: {self.text()}")

    def furthest_step(self) -> int:
        """The highest step done so far."""
        return max(
            (int(m[1]) for _, line in list(self.lines) if (m := _STEP.search(line))), default=0
        )

    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)


def _schedule(chance: random.Random) -> Iterator[tuple[int, str, signal.Signals]]:
    """At which step, what and how: every kind as often as the others, in random order."""
    steps = sorted(1 + number * (STEPS - 2) // KILLS for number in range(KILLS))
    kinds = (list(VICTIMS) * (KILLS // len(VICTIMS) + 1))[:KILLS]
    chance.shuffle(kinds)
    for step, kind in zip(steps, kinds, strict=True):
        stopped = chance.random() < _STOPPED_OF_ALL
        yield step, kind, signal.SIGSTOP if stopped else signal.SIGKILL


@pytest.mark.timeout(3600)
def test_a_run_outlives_the_loss_of_any_worker_at_any_moment(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, before = random.Random(SEED), left_behind()
    folder = tmp_path / "run"
    process = start(folder, max_restarts=20, **OPTIONS)
    output = _Output(process)
    blows = []
    for step, victim, number in _schedule(chance):
        while output.furthest_step() < step:
            assert process.poll() is None, output.text()
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 0.6))
        blows.append(_strike(folder, output, victim, number))
    assert process.wait(timeout=_RECOVERY_TIMEOUT) == 0, output.text()
    assert_all_gone(processes_of(folder))
    assert left_behind() <= before
    with capsys.disabled():
        _print(blows, whole)
    assert metrics(folder) == metrics(whole)  # and with them the account of the prompts
    assert _accuracy(folder) == _accuracy(whole)
    _check_times(blows, whole)


def _check_times(blows: Sequence[Blow], whole: Path) -> None:
    """All are found in time; a generator is back as soon as at the start, plus one publish."""
    summary = json.loads((whole / "summary.json").read_text())
    for blow in blows:
        limit = FOUND_DEAD_WITHIN
        limit += HEARTBEAT_TIMEOUT if blow.number == signal.SIGSTOP else 0.0
        assert blow.detection < limit, blow
    publishes = [record["time/publish"] for record in all_metrics(whole)[1:]]
    back = summary["seconds_setup"] + max(publishes)
    generators = [blow for blow in blows if VICTIMS[blow.victim] == "generator"]
    assert statistics.median(blow.recovery - blow.detection for blow in generators) < back


def _accuracy(folder: Path) -> float:
    return float(json.loads((folder / "summary.json").read_text())["eval_accuracy_after"])


def _strike(folder: Path, output: _Output, victim: str, number: signal.Signals) -> Blow:
    process = _wait_for_process(folder, victim)
    struck = time.monotonic()
    process.send_signal(number)
    words = rf"the {VICTIMS[victim]} worker.*(died|no sign of life)"
    found = output.wait_for(words, since=struck)
    # A blow after the last step is followed by no other, but by the run's summary.
    recovered = output.wait_for(rf"{_STEP.pattern}|held-out accuracy", since=found)
    return Blow(victim, number, found - struck, recovered - struck)


def _wait_for_process(folder: Path, victim: str) -> psutil.Process:
    """The one to hit; one that was hit while nobody needed it is replaced on its next use."""
    deadline = time.monotonic() + _RECOVERY_TIMEOUT
    while time.monotonic() < deadline:
        for process in called(processes_of(folder), victim):
            return process
        time.sleep(0.02)
    raise AssertionError(f"there is no {victim}")


def _print(blows: list[Blow], whole: Path) -> None:
    """Seconds of detection (largest) and recovery (median, largest) by what was hit and how."""
    start_seconds = json.loads((whole / "summary.json").read_text())["seconds_setup"]
    print(f"\n{len(blows)} blows; the undisturbed run's workers started in {start_seconds:.1f} s")
    for kind in sorted({(blow.victim, blow.number.name) for blow in blows}):
        own = [blow for blow in blows if (blow.victim, blow.number.name) == kind]
        recoveries = [blow.recovery for blow in own]
        print(
            f"{kind[0]:20} {kind[1]:8} {len(own):2} found within "
            f"{max(blow.detection for blow in own):5.2f} s, next step after "
            f"{statistics.median(recoveries):5.1f} s (at most {max(recoveries):5.1f} s)"
        )
