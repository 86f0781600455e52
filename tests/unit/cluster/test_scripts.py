"""Scripts of cluster/: shellcheck, and dry runs in which ssh, srun and ray are written down."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ["cluster/setup_cpu.sh", "cluster/slurm.sbatch", "cluster/start_ray.sh", ".ci/run"]
_LOG_CALL = '#!/usr/bin/env bash\necho "$(basename "$0") $*" >>"$CALLS"\n'


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script: str) -> None:
    tool = Path(sys.executable).with_name("shellcheck")
    result = subprocess.run(
        [tool, ROOT / script], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout


class Stubs:
    """Programs that write down how they are called, and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.bin = folder / "venv" / "bin"
        self.bin.mkdir(parents=True)
        self.home = folder / "home"
        self.home.mkdir()
        self.environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "VENV": str(folder / "venv"),
            "CALLS": str(self.calls),
        }

    def add(self, name: str, body: str = "") -> None:
        """A program of that name; `body` is what it does after it has written down its call."""
        program = self.bin / name
        program.write_text(_LOG_CALL + body)
        program.chmod(0o755)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A script of the repository among the stubs."""
        return subprocess.run(
            ["bash", str(ROOT / words[0]), *words[1:]],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment | variables,
        )

    def lines(self) -> list[str]:
        """All calls, in order."""
        return self.calls.read_text().splitlines()


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    """No programs yet."""
    return Stubs(tmp_path)


def _ssh(stubs: Stubs) -> None:
    """Answers with an address, and fails for the host `broken`."""
    stubs.add(
        "ssh",
        "[[ $1 != broken ]] || exit 255\n"
        '[[ $2 != *hostname* ]] || echo "10.0.0.1 fe80::1"\n'
        "cat >/dev/null\n",
    )
    stubs.add("ray", 'mkdir -p "$HOME/.ray" && echo secret >"$HOME/.ray/auth_token"\n')


def test_plain_hosts_are_started_head_first(stubs: Stubs) -> None:
    _ssh(stubs)
    result = stubs.run("cluster/start_ray.sh", "gpu1", "gpu2", REPOSITORY="/srv/light rft")
    assert result.returncode == 0, result.stderr
    assert "RAY_ADDRESS=10.0.0.1:6379" in result.stdout
    calls = stubs.lines()
    assert calls[0] == "ray get-auth-token --generate"
    starts = [call for call in calls if "ray start" in call]
    assert starts[0].startswith(r"ssh gpu1 cd /srv/light\ rft && PATH=")
    assert starts[0].endswith("RAY_AUTH_MODE=token ray start --head --port=6379")
    assert starts[1].startswith("ssh gpu2 ")
    assert starts[1].endswith("ray start --address=10.0.0.1:6379")
    assert sum("auth_token" in call for call in calls if call.startswith("ssh")) == 2


def test_plain_hosts_are_stopped(stubs: Stubs) -> None:
    _ssh(stubs)
    result = stubs.run("cluster/start_ray.sh", "--stop", "broken", "gpu2")
    assert result.returncode == 1
    assert "broken failed" in result.stderr
    assert stubs.lines()[-1].endswith("ray stop")  # on gpu2, though the host before it failed


def test_a_host_that_does_not_answer_is_named(stubs: Stubs) -> None:
    _ssh(stubs)
    result = stubs.run("cluster/start_ray.sh", "gpu1", "broken")
    assert result.returncode == 1
    assert "start_ray.sh: broken failed" in result.stderr


@pytest.mark.parametrize("words", [(), ("--halt", "gpu1"), ("--stop",)])
def test_wrong_arguments_start_nothing(stubs: Stubs, words: tuple[str, ...]) -> None:
    _ssh(stubs)
    result = stubs.run("cluster/start_ray.sh", *words)
    assert result.returncode == 2
    assert result.stderr.startswith("usage:")
    assert not stubs.calls.exists()


def _slurm(stubs: Stubs, *, joined: int, driver: str) -> None:
    """A scheduler of two nodes; Ray lists as many as have `joined`."""
    stubs.add("scontrol", '[[ $1 != show ]] || printf "n1\\nn2\\n"\n')
    stubs.add(
        "srun",
        '[[ $* != *hostname* ]] || echo "10.0.0.7 fe80::1"\n'
        '[[ $* != *"ray start"* ]] || exec /bin/sleep 60\n',
    )
    stubs.add("ray", f"for ((i = 0; i < {joined}; i++)); do echo '\"node_id\"'; done\n")
    stubs.add("sleep")
    stubs.add("python", driver)


_ALLOCATION = {
    "SLURM_SUBMIT_DIR": str(ROOT),
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_ID": "7",
}


def test_a_run_under_slurm(stubs: Stubs) -> None:
    _slurm(stubs, joined=2, driver='echo "driver at $RAY_ADDRESS with $RAY_AUTH_MODE" >>"$CALLS"\n')
    result = stubs.run("cluster/slurm.sbatch", "--config", "my.yaml", **_ALLOCATION)
    assert result.returncode == 0, result.stderr
    calls = stubs.lines()
    one = "srun --nodes=1 --ntasks=1 --overlap --nodelist="
    assert f"{one}n1 ray start --block --head --port=6379" in calls
    assert f"{one}n2 ray start --block --address=10.0.0.7:6379" in calls
    assert "python launch/ppo_vl.py --config my.yaml --resume auto" in calls
    assert calls[-1] == "driver at 10.0.0.7:6379 with token"
    assert not any("requeue" in call for call in calls)


def test_the_status_of_the_run_is_that_of_the_job(stubs: Stubs) -> None:
    _slurm(stubs, joined=2, driver="exit 3\n")
    assert stubs.run("cluster/slurm.sbatch", **_ALLOCATION).returncode == 3


def test_nodes_that_do_not_join_end_the_job(stubs: Stubs) -> None:
    _slurm(stubs, joined=1, driver="")
    result = stubs.run("cluster/slurm.sbatch", **_ALLOCATION, RAY_START_TIMEOUT="1")
    assert result.returncode == 1
    assert "1 of 2 nodes have joined Ray at 10.0.0.7:6379" in result.stderr
    assert not any(call.startswith("python") for call in stubs.lines())


def test_before_the_time_is_over_the_run_saves_and_is_queued_again(stubs: Stubs) -> None:
    saves = (
        "trap 'echo saved >>\"$CALLS\"; exit 130' TERM\n"
        "kill -USR1 $PPID\n"
        "while :; do /bin/sleep 0.05; done\n"
    )
    _slurm(stubs, joined=2, driver=saves)
    result = stubs.run("cluster/slurm.sbatch", **_ALLOCATION)
    assert result.returncode == 130, result.stderr
    assert stubs.lines()[-2:] == ["saved", "scontrol requeue 7"]


def test_slurm_alone_runs_the_batch_script(stubs: Stubs) -> None:
    result = stubs.run("cluster/slurm.sbatch")
    assert result.returncode != 0
    assert "this is a script for sbatch" in result.stderr
