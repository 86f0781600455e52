"""Placement on a cluster of several nodes, whose GPUs are only said to be there.

The nodes are real Ray nodes on this machine, and the actors are started by the code that starts
those of a run.
"""

import os
import time
from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.driver.doctor_cluster import check_cluster
from lightrft_ray.driver.placement import placed, role_demands
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.workers import Starter

GPUS = 4


@ray.remote
class Probe:
    """Tells where it is."""

    def place(self) -> tuple[str, str]:
        """Node and visible GPUs."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return ray.get_runtime_context().get_node_id(), visible


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head without GPUs and two nodes with four; one of these has a custom resource."""
    with pytest.MonkeyPatch.context() as patch:
        # Another Ray on this machine must not meet this one; sockets' paths must be short.
        patch.setenv("RAY_TMPDIR", str(tmp_path_factory.mktemp("r")))
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 4})
        started.add_node(num_cpus=8, num_gpus=GPUS)
        started.add_node(num_cpus=8, num_gpus=GPUS, resources={"big_memory": 4})
        yield started
        started.shutdown()


@pytest.fixture
def connected(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is a driver on the cluster."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    with ray_session():
        yield


def _run(placement: dict[str, object], **rollout: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "placement": {"vllm_use_gpu": True, "placement_timeout": 3, **placement},
            "rollout": {"rollout_batch_size": 24, **rollout},
            "trainer": {"train_batch_size": 192, "micro_train_batch_size": 8},
        }
    )


def _places(run: RunConfig, role: str) -> list[tuple[str, str]]:
    """(node, visible GPUs) of each process of a role, by rank."""
    demands = role_demands(run)
    with placed(run, demands, is_local=False) as placement:
        starter = Starter(run, placement, {demand.role: demand for demand in demands}, "run")
        return starter.create(role, Probe, (), 60).call("place")


def _nodes_with(resource: str) -> set[str]:
    return {
        node["NodeID"] for node in ray.nodes() if node["Alive"] and resource in node["Resources"]
    }


def test_ranks_of_a_node_are_neighbours_with_a_gpu_each(connected: None) -> None:
    run = _run({"actor_num_nodes": 2, "actor_num_gpus_per_node": 3}, vllm_num_engines=2)
    places = _places(run, "learner")
    nodes = [node for node, _ in places]
    assert nodes[0] == nodes[1] == nodes[2] != nodes[3] == nodes[4] == nodes[5]
    assert {nodes[0], nodes[3]} == _nodes_with("GPU")
    for mine in (places[:3], places[3:]):
        gpus = [visible for _, visible in mine]
        assert len(set(gpus)) == 3
        assert all(visible.isdigit() and int(visible) < GPUS for visible in gpus)


def test_an_engine_over_two_gpus_sees_both(connected: None) -> None:
    run = _run(
        {"actor_num_gpus_per_node": 2, "strategies": {"generator": "STRICT_SPREAD"}},
        vllm_num_engines=2,
        vllm_tensor_parallel_size=2,
    )
    places = _places(run, "generator")
    assert {node for node, _ in places} == _nodes_with("GPU")
    assert all(len(visible.split(",")) == 2 for _, visible in places)


def test_a_role_goes_where_its_resource_is(connected: None) -> None:
    run = _run({"actor_num_gpus_per_node": 2, "resources": {"learner": {"big_memory": 2}}})
    assert {node for node, _ in _places(run, "learner")} == _nodes_with("big_memory")


@pytest.mark.parametrize(
    ("placement", "rollout", "said"),
    [
        (
            {"actor_num_gpus_per_node": 8},
            {},
            "9 GPUs (learner 8, generator 1) and the cluster has 8",
        ),
        (
            {"actor_num_gpus_per_node": 1, "resources": {"learner": {"infiniband": 1}}},
            {},
            "1 infiniband (learner 1) and the cluster has 0",
        ),
        (
            {"actor_num_nodes": 2, "actor_num_gpus_per_node": 2},
            {"vllm_tensor_parallel_size": 4},
            "the generator needs 4 GPU, 1 CPU on one node",
        ),
    ],
    ids=["too many GPUs", "no such resource", "scraps"],
)
def test_what_does_not_fit_is_said_in_time(
    connected: None, placement: dict[str, object], rollout: dict[str, object], said: str
) -> None:
    run = _run({"strategies": {"learner": "STRICT_SPREAD"}, **placement}, **rollout)
    start = time.monotonic()
    with pytest.raises(UserError) as error, placed(run, role_demands(run), is_local=False):
        pass
    assert said in str(error.value)
    assert time.monotonic() - start < 3 + 5
    deadline = time.monotonic() + 10
    while ray.available_resources().get("GPU", 0) < 2 * GPUS:  # all was given back
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_table_comes_first(connected: None, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run({"actor_num_gpus_per_node": 2})
    with placed(run, role_demands(run), is_local=False):
        table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == [
        "role",
        "learner",
        "generator",
        "reward",
        "needed:",
    ]
    assert table[-1].startswith("needed: 3 GPU, 3.2 CPU; free: 8 GPU, 20 CPU on 3 nodes")


def test_a_cluster_of_other_versions_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray itself decides it; the message is one line with both versions."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.setattr("ray._private.utils.compute_version_info", lambda: ("2.59.0", "3.10.1"))
    with pytest.raises(UserError) as error, ray_session():
        pass
    text = str(error.value)
    assert "Ray 2.59.0 and Python 3.10.1" in text
    assert f"Ray {ray.__version__}" in text
    assert "\n" not in text


def test_the_doctor_finds_three_nodes_of_one_kind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    findings = {finding.check: finding for finding in check_cluster()}
    assert findings["cluster"].text == "3 nodes with 8 GPU, 20 CPU"
    assert (findings["versions"].status, findings["versions"].text) == ("ok", "the same on 3 nodes")
    assert findings["object stores"].status == "warning"  # 150 MB each, to be small
