"""The server as a user starts it: a process, its metrics, its end by SIGTERM, and its refusals."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from reward_samples import samples
from serving import client

from lightrft_ray.rewards.sample import SampleScore

ROOT = Path(__file__).parents[4]
_SLOW = """
import pathlib, time

def reward_func(responses):
    pathlib.Path("FOLDER/started").touch()
    while not pathlib.Path("FOLDER/go").exists():
        time.sleep(0.01)
    return [float(response) for response in responses]
"""


def _command(config: Path) -> list[str]:
    return [sys.executable, str(ROOT / "launch" / "serve_reward.py"), "--config", str(config)]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@contextmanager
def _server(config: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        _command(config), stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _next_word(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(beginning), line
    return line.split()[-1]


def test_a_server_scores_counts_and_drains(tmp_path: Path) -> None:
    reward = tmp_path / "slow.py"
    reward.write_text(_SLOW.replace("FOLDER", str(tmp_path)))
    config = tmp_path / "server.yaml"
    config.write_text(f"reward: {{reward_fn: {reward}}}\nserver: {{port: 0, metrics_port: 0}}\n")

    async def story(process: subprocess.Popen[str], address: str, metrics: str) -> None:
        async with client(address, remote_attempt_timeout=30.0, remote_deadline=30.0) as remote:
            asking = asyncio.create_task(remote.score(samples(3)))
            while not (tmp_path / "started").exists():
                await asyncio.sleep(0.02)
            assert await asyncio.to_thread(_metric, metrics, "reward_samples_queued") == 3
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(_next_word, process, "stopping")
            (tmp_path / "go").touch()
            assert await asking == [SampleScore(f"s{i}", float(i % 2)) for i in range(3)]

    with _server(config) as process:
        address = _next_word(process, f"serving {reward} at grpc://127.0.0.1:")
        metrics = _next_word(process, "metrics at http://127.0.0.1:")
        asyncio.run(story(process, address, metrics))
        assert process.wait(timeout=20) == 0


def _metric(address: str, name: str) -> float:
    with urllib.request.urlopen(address, timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
        (value,) = [one.value for each in families for one in each.samples if one.name == name]
        return float(value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("reward: {reward_fn: exact_mach}", "exact_mach"),
        ("reward: {reward_fn: exact_match}\nserver: {host: 192.0.2.1}", "cannot listen there"),
    ],
)
def test_a_mistake_ends_it_with_one_line(tmp_path: Path, content: str, reason: str) -> None:
    config = tmp_path / "server.yaml"
    config.write_text(content)
    done = subprocess.run(
        _command(config),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and reason in line
