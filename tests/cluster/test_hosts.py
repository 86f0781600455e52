"""The main job over three hosts: as on one, with a link that fails, and with a host that is lost.

`make test-cluster`; as root, for network namespaces.
"""

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.cluster.ray_hosts import RayHosts
from tests.cluster.runs import PINNED, STEPS
from tests.integration.launching import metrics, read_until

CUT_SECONDS = 30.0
END_WITHIN = 240.0  # s after what happened to the run
_LAYOUT = re.compile(r"^(learner|generator|reward) .*?((?:\S+ ×\d+(?:, )?)+)$", re.MULTILINE)

pytestmark = pytest.mark.timeout(900)


def _end(process: subprocess.Popen[str], seconds: float = END_WITHIN) -> str:
    """The rest of the output of a run that must end well, and in time."""
    output, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, output
    return output


def _check(folder: Path, whole: Path) -> None:
    """The metrics of a run on one host, and with them the account of its prompts."""
    records = metrics(folder)
    assert records == metrics(whole)
    last = records[-1]
    assert last["step"] == STEPS
    parts = ("trained", "filtered", "failed", "in_flight")
    assert last["data/taken"] == sum(last[f"data/{part}"] for part in parts)
    assert last["data/in_flight"] == 0


def test_three_hosts_give_the_metrics_of_one(
    cluster: RayHosts, whole: Path, tmp_path: Path
) -> None:
    process = cluster.launch(tmp_path / "run", **PINNED)
    head = "".join(read_until(process, "needed:"))
    places = {role: where.split(", ") for role, where in _LAYOUT.findall(head)}
    _end(process, 2 * END_WITHIN)
    _check(tmp_path / "run", whole)
    hosts = {host.address: host.number for host in cluster.hosts}
    found = {
        role: sorted(hosts[place.partition(" ")[0]] for place in where)
        for role, where in places.items()
    }
    assert found == {"learner": [1, 2], "generator": [2, 3], "reward": [1]}


def test_a_generator_host_that_is_cut_off_for_a_while(
    cluster: RayHosts, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = cluster.launch(tmp_path / "run", **PINNED)
    read_until(process, f"step 2/{STEPS}")
    cut_off = cluster.hosts[2]
    cut_off.cut()
    mending = threading.Timer(CUT_SECONDS, cut_off.mend)
    mending.start()
    began = time.monotonic()
    output = _end(process)
    mending.join()
    with capsys.disabled():
        print(f"\nended {time.monotonic() - began:.0f} s after the link was cut\n{output}")
    _check(tmp_path / "run", whole)


def test_a_host_that_is_lost_and_comes_back(
    cluster: RayHosts, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = cluster.launch(tmp_path / "run", **PINNED)
    read_until(process, f"step 2/{STEPS}")
    cluster.kill(cluster.hosts[2])
    began = time.monotonic()
    cluster.start(cluster.hosts[2])
    output = _end(process)
    with capsys.disabled():
        print(f"\nended {time.monotonic() - began:.0f} s after the host was lost\n{output}")
    _check(tmp_path / "run", whole)
