"""Placement on 64 nodes with 8 pretended GPUs each: the largest configuration, in seconds.

The nodes are real Ray nodes as far as placement goes. What else each runs, agents of the dashboard
and of runtime environments, is 128 Python processes that place nothing: programs that do nothing
stand in for these.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table

from lightrft_ray.config.load import load_config
from lightrft_ray.driver.placement import placed, role_demands
from lightrft_ray.driver.ray_session import ray_session

NODES, GPUS = 64, 8
FOUND_WITHIN = 10.0  # s
CONFIG = Path(__file__).parents[2] / "launch" / "configs" / "grpo_qwen2_5_vl_72b_64gpu.yaml"
_AGENTS = ("dashboard/agent.py", "_private/runtime_env/agent/main.py")
_LIVES_WITH_ITS_PARENT = """
import os, time
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(1)
"""
# Where the agents would listen; without numbers a node waits until they say.
_AGENT_PORTS = {
    "metrics_agent_port": 41001,
    "dashboard_agent_listen_port": 41002,
    "runtime_env_agent_port": 41003,
    "metrics_export_port": 41004,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A whole head without GPUs, and the nodes."""
    stand_ins = tmp_path_factory.mktemp("agents")
    for name in _AGENTS:
        (stand_ins / name).parent.mkdir(parents=True)
        (stand_ins / name).write_text(_LIVES_WITH_ITS_PARENT)
    with pytest.MonkeyPatch.context() as patch:
        # Another Ray on this machine must not meet this one; sockets' paths must be short.
        patch.setenv("RAY_TMPDIR", str(tmp_path_factory.mktemp("r")))
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 8})
        patch.setattr("ray._private.services.RAY_PATH", str(stand_ins))
        try:
            for _ in range(NODES):
                size = {"num_cpus": 2 * GPUS, "num_gpus": GPUS, "object_store_memory": 80 * 2**20}
                started.add_node(wait=False, **size, **_AGENT_PORTS)
            started.wait_for_nodes(timeout=120)
            yield started
        finally:
            started.shutdown()


def test_the_configuration_for_64_gpus_is_placed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    config = load_config(CONFIG, [])
    demands = role_demands(config)
    with ray_session():
        assert ray.cluster_resources()["GPU"] == NODES * GPUS
        start = time.monotonic()
        with placed(config, demands, is_local=False) as placement:
            seconds = time.monotonic() - start
            nodes = {
                role: Counter(placement_group_table(placement[role])["bundles_to_node_id"].values())
                for role in ("learner", "generator")
            }
    with capsys.disabled():
        print(f"\nplaced on {NODES} nodes of {GPUS} GPUs in {seconds:.2f} s")
    assert seconds < FOUND_WITHIN
    assert len(nodes["learner"]) == config.placement.actor_num_nodes
    assert nodes["generator"].total() == config.rollout.vllm_num_engines
