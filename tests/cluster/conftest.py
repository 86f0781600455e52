"""Three hosts with Ray, and the run on one host that all others are held against."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.network import hosts, missing
from tests.cluster.ray_hosts import RayHosts
from tests.cluster.runs import OPTIONS
from tests.integration.launching import launch


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHosts]:
    """Ray on three hosts; its folder's name is short, as sockets' paths must be."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with hosts(3) as machines:
        started = RayHosts(machines, tmp_path_factory.mktemp("r"))
        try:
            started.start_all()
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run on one host, which nothing happens to."""
    if missing() is not None:
        pytest.skip("no run to compare it with")
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = launch(folder, **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder
