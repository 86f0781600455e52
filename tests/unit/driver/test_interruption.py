"""The first signal ends a run in order, the second at once."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from lightrft_ray.driver.interruption import Interruption


def test_the_first_signal_interrupts_at_once_where_nothing_is_shielded() -> None:
    interruption = Interruption()
    with pytest.raises(KeyboardInterrupt), interruption.handled():
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("went on")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_shielded_block_comes_to_its_end_first(capfd: pytest.CaptureFixture[str]) -> None:
    interruption = Interruption()
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt), interruption.handled():
        with interruption.shielded():
            signal.raise_signal(signal.SIGINT)
            reached.append("end of the block")
        reached.append("behind it")
    assert reached == ["end of the block"]
    assert "the run ends after this step" in capfd.readouterr().err
    with interruption.shielded():  # saving and tearing down are not interrupted again
        reached.append("afterwards")
    assert reached[-1] == "afterwards"


SECOND = """
import subprocess, sys, time
from lightrft_ray.driver.interruption import Interruption
interruption = Interruption()
with interruption.handled(), interruption.shielded():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    time.sleep(60)
"""


def test_the_second_signal_kills_the_run_and_its_children() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SECOND],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None and child.is_running()
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "interrupted twice" in errors
    assert time.monotonic() - start < 3
    assert not child.is_running()
