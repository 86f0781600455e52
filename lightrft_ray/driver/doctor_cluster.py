"""Checks of a Ray cluster: it answers, its nodes are alive, and all have the same software."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lightrft_ray.config import UserError
from lightrft_ray.driver.doctor import Finding
from lightrft_ray.driver.packing import show_resources
from lightrft_ray.driver.ray_session import ray_session

Versions = dict[str, str]

_ADDRESS = "RAY_ADDRESS"
_COMPARED = ("ray", "torch", "vllm", "transformers", "deepspeed", "lightrft-ray")
_ANSWER_TIMEOUT = 120.0  # s: a node's first worker process takes its time
_SMALL_OBJECT_STORE = 4 * 10**9


def check_cluster() -> list[Finding]:
    """What there is to say of the cluster at RAY_ADDRESS; nothing where none is named."""
    if not os.environ.get(_ADDRESS):
        return [Finding("cluster", "ok", f"none is named ({_ADDRESS}): runs start a Ray here")]
    try:
        with ray_session():
            nodes = ray.nodes()
            return [
                *check_nodes(nodes),
                *check_object_stores(nodes),
                *check_versions(_versions_by_node(nodes)),
            ]
    except UserError as error:
        return [Finding("cluster", "failed", str(error), "`ray status` on the head says more")]


def check_nodes(nodes: Sequence[Mapping[str, object]]) -> list[Finding]:
    """Nodes that have died, and what the living ones have in all. `nodes` is from `ray.nodes()`."""
    total: dict[str, float] = defaultdict(float)
    for node in nodes:
        if node["Alive"]:
            for name in ("GPU", "CPU"):
                total[name] += dict(node["Resources"]).get(name, 0.0)  # type: ignore[call-overload]
    alive = sum(bool(node["Alive"]) for node in nodes)
    findings = [Finding("cluster", "ok", f"{alive} nodes with {show_resources(total)}")]
    dead = [str(node["NodeManagerAddress"]) for node in nodes if not node["Alive"]]
    if dead:
        remedy = "look at /tmp/ray/session_latest/logs/raylet.out there, and start Ray again"
        text = f"{len(dead)} have died: {', '.join(dead[:5])}"
        findings.append(Finding("nodes", "warning", text, remedy))
    return findings


def check_object_stores(nodes: Sequence[Mapping[str, object]]) -> list[Finding]:
    """Each node can hold images and published weights."""
    small = [
        str(node["NodeManagerAddress"])
        for node in nodes
        if node["Alive"]
        and dict(node["Resources"]).get("object_store_memory", 0)  # type: ignore[call-overload]
        < _SMALL_OBJECT_STORE
    ]
    if not small:
        return [Finding("object stores", "ok", "4 GB or more on each node")]
    remedy = "ray start --object-store-memory; `launch/plan.py` says what is published"
    text = f"below {_SMALL_OBJECT_STORE / 1e9:g} GB on {', '.join(small[:5])}"
    return [Finding("object stores", "warning", text, remedy)]


def check_versions(by_node: Mapping[str, Versions | None]) -> list[Finding]:
    """All nodes have the same Python and packages; None is a node that did not answer."""
    findings = []
    silent = sorted(node for node, versions in by_node.items() if versions is None)
    if silent:
        remedy = "`ray status` and that node's logs; is it out of memory or behind a firewall?"
        text = f"no answer from {', '.join(silent)}"
        findings.append(Finding("nodes", "failed", text, remedy))
    answers = {node: versions for node, versions in by_node.items() if versions is not None}
    for name in ("python", *_COMPARED):
        nodes_of: dict[str, list[str]] = defaultdict(list)
        for node, versions in answers.items():
            nodes_of[versions[name]].append(node)
        if len(nodes_of) > 1:
            text = "; ".join(f"{each} on {', '.join(on)}" for each, on in sorted(nodes_of.items()))
            remedy = "install the same on all nodes, and start Ray there again"
            findings.append(Finding("versions", "failed", f"{name} is {text}", remedy))
    if answers and not findings:
        findings.append(Finding("versions", "ok", f"the same on {len(answers)} nodes"))
    return findings


def own_versions() -> Versions:
    """Versions of what must be the same everywhere; "none" for what is not installed."""
    return {"python": python_version()} | {name: _version(name) for name in _COMPARED}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _versions_by_node(nodes: Sequence[Mapping[str, object]]) -> dict[str, Versions | None]:
    """Asks a process on each node; nodes without CPUs run it, too."""
    task = ray.remote(num_cpus=0, max_retries=0)(own_versions)
    asked = {
        _name(node): task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(str(node["NodeID"]), soft=False)
        ).remote()
        for node in nodes
        if node["Alive"]
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_TIMEOUT)
    answers: dict[str, Versions | None] = {}
    for name, reference in asked.items():
        try:
            answers[name] = ray.get(reference, timeout=0.1)
        except (GetTimeoutError, RayError):
            answers[name] = None
    return answers


def _name(node: Mapping[str, object]) -> str:
    """Nodes on one host have one name, but not one id."""
    return f"{node['NodeName']} ({str(node['NodeID'])[:8]})"
