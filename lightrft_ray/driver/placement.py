"""What each role needs, and placement groups for it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import ray
from ray._private.state import available_resources_per_node  # Ray has no public one by node
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.placement import PlacementConfig, Role
from lightrft_ray.config.reward_sources import RewardModelConfig
from lightrft_ray.driver.layout_text import count_nodes, layout_table
from lightrft_ray.driver.packing import (
    Node,
    Packing,
    Resources,
    RoleDemand,
    exact_sum,
    in_placing_order,
    pack,
    show_resources,
)

# A process without a GPU still computes, but on a laptop all roles must fit on two cores.
_CPU_OF_CPU_WORKER = 0.2
_CPU_OF_GPU_WORKER = 1.0
_LOCAL_TIMEOUT = 10.0  # s: a local Ray has all it will ever have
_RELEASE_TIME = 1.0  # s: until Ray counts what removed groups had as free again


def role_demands(config: RunConfig) -> list[RoleDemand]:
    """The roles that a run has, and what they need."""
    place, rollout = config.placement, config.rollout
    actor = (place.actor_num_nodes, place.actor_num_gpus_per_node)
    demands = [
        _on_nodes("learner", *actor, place.cpu_learner_ranks),
        RoleDemand("generator", (_generator(config),) * rollout.vllm_num_engines),
        _on_nodes("reward", 0, 0, 1),
    ]
    demands += [
        RoleDemand(reward_model_role(name), (_reward_model(model),) * model.num_workers)
        for name, model in config.reward.models.items()
    ]
    if config.uses_reference:
        ref = (place.ref_num_nodes, place.ref_num_gpus_per_node)
        demands.append(_on_nodes("reference", *ref, place.cpu_ref_workers))
    if config.uses_critic:
        critic = (place.critic_num_nodes, place.critic_num_gpus_per_node)
        demands.append(_on_nodes("critic", *critic, place.cpu_learner_ranks))
    configured = [_as_configured(demand, place) for demand in demands]
    return _with_guests(configured, shares_of_hosts(config))


def shares_of_hosts(config: RunConfig) -> dict[str, RoleDemand]:
    """With `placement.colocate`, what each process takes of the learner's bundles, by role.

    Guests have a CPU of their own and no GPU: they are shown the learner's. Empty without.
    """
    place = config.placement
    if not config.guests:
        return {}
    gpus = place.actor_num_gpus_per_node
    learner = _as_configured(
        _on_nodes("learner", place.actor_num_nodes, gpus, place.cpu_learner_ranks), place
    )
    cpu = _CPU_OF_GPU_WORKER if gpus else _CPU_OF_CPU_WORKER
    shares = {"learner": learner}
    for role in sorted(config.guests):
        width = config.rollout.vllm_tensor_parallel_size if role == "generator" else 1
        count = learner.processes_per_bundle // width
        bundles = ({"CPU": cpu * count},) * len(learner.bundles)
        shares[role] = RoleDemand(role, bundles, count)
    return shares


def _with_guests(
    demands: Sequence[RoleDemand], shares: Mapping[str, RoleDemand]
) -> list[RoleDemand]:
    """The demands without those of guests, which the learner's bundles have room for."""
    if not shares:
        return list(demands)
    cpus = exact_sum(share.bundles[0]["CPU"] for share in shares.values())
    hosts = []
    for demand in demands:
        if demand.role == "learner":
            roomy = tuple(bundle | {"CPU": cpus} for bundle in demand.bundles)
            hosts.append(replace(demand, bundles=roomy))
        elif demand.role not in shares:
            hosts.append(demand)
    return hosts


def _on_nodes(role: str, nodes: int, gpus_per_node: int, cpu_processes: int) -> RoleDemand:
    """One process a GPU, in a bundle for each node, or a number of CPU processes.

    Ranks are counted through node by node, so that those of one node are neighbours.
    """
    if not gpus_per_node:
        return RoleDemand(role, ({"CPU": _CPU_OF_CPU_WORKER},) * cpu_processes)
    bundle = {"CPU": _CPU_OF_GPU_WORKER * gpus_per_node, "GPU": float(gpus_per_node)}
    return RoleDemand(role, (bundle,) * nodes, gpus_per_node)


def _as_configured(demand: RoleDemand, place: PlacementConfig) -> RoleDemand:
    """With the custom resources of each process, and the strategy of the role."""
    kind = cast(Role, demand.role.partition(".")[0])
    custom = {
        name: exact_sum([amount] * demand.processes_per_bundle)
        for name, amount in place.resources.get(kind, {}).items()
    }
    bundles = tuple(bundle | custom for bundle in demand.bundles)
    return replace(demand, bundles=bundles, strategy=place.strategies.get(kind, "PACK"))


def reward_model_role(name: str) -> str:
    """The role of one of the run's reward models."""
    return f"reward_model.{name}"


def _reward_model(model: RewardModelConfig) -> Resources:
    if model.gpus_per_worker:
        return {"CPU": _CPU_OF_GPU_WORKER, "GPU": model.gpus_per_worker}
    return {"CPU": _CPU_OF_CPU_WORKER}


def _generator(config: RunConfig) -> Resources:
    if config.placement.vllm_use_gpu:
        gpus = float(config.rollout.vllm_tensor_parallel_size)
        return {"CPU": _CPU_OF_GPU_WORKER, "GPU": gpus}
    return {"CPU": _CPU_OF_CPU_WORKER}


def describe_shortage(demands: Sequence[RoleDemand], supply: Mapping[str, float]) -> str | None:
    """One line for what is asked for beyond `supply`; None where it would fit."""
    parts = []
    for resource in _resources(demands):
        asked, there = _asked(demands, resource), supply.get(resource, 0.0)
        if asked > there:
            by_role = ", ".join(
                f"{d.role} {d.total(resource):g}" for d in demands if d.total(resource)
            )
            name = f"{resource}s" if resource in ("GPU", "CPU") else resource
            parts.append(f"{asked:g} {name} ({by_role}) and the cluster has {there:g}")
    return "; ".join(parts) or None


def demand_table(
    demands: Sequence[RoleDemand], nodes: Sequence[Node], packing: Packing
) -> list[str]:
    """Lines for what each role asks for and where it fits, and for demand and supply."""
    kinds, supply = _resources(demands), _supply(nodes)
    needed = show_resources({kind: _asked(demands, kind) for kind in kinds})
    there = show_resources({kind: supply.get(kind, 0.0) for kind in kinds})
    total = f"needed: {needed}; free: {there} on {count_nodes(len(nodes))}"
    return [*layout_table(demands, packing), total]


def _resources(demands: Sequence[RoleDemand]) -> list[str]:
    """What is asked for at all: GPUs, CPUs, then custom resources."""
    asked = {name for demand in demands for bundle in demand.bundles for name in bundle}
    return [*(name for name in ("GPU", "CPU") if name in asked), *sorted(asked - {"GPU", "CPU"})]


def _asked(demands: Sequence[RoleDemand], resource: str) -> float:
    return exact_sum(demand.total(resource) for demand in demands)


def _supply(nodes: Sequence[Node]) -> Mapping[str, float]:
    supply: Counter[str] = Counter()
    for node in nodes:
        supply.update(node.free)
    return supply


def free_nodes() -> list[Node]:
    """The nodes of the cluster that this process is connected to, with what is free there."""
    free = available_resources_per_node()
    return [
        Node(each["NodeName"], free.get(each["NodeID"], {}))
        for each in ray.nodes()
        if each["Alive"]
    ]


class Placement:
    """Placement groups by role; `close` gives them back."""

    def __init__(
        self,
        demands: Sequence[RoleDemand],
        timeout: float,
        *,
        is_local: bool,
        say: Callable[[str], None] = print,
    ) -> None:
        """Reserve everything, after a table of it. Raises UserError that says what is missing.

        A cluster may still be growing, so that it has `timeout` seconds; a local Ray has not.
        """
        self._groups: dict[str, PlacementGroup] = {}
        deadline = time.monotonic() + (_LOCAL_TIMEOUT if is_local else timeout)
        nodes = free_nodes()
        packing = pack(demands, nodes)
        for line in demand_table(demands, nodes, packing):
            say(line)
        shortage = describe_shortage(demands, ray.cluster_resources())
        if shortage and is_local:
            raise UserError(_too_much(shortage))
        if packing.misfit and not is_local:
            say(f"waiting up to {timeout:g} s for what is missing: {packing.misfit}")
        try:
            # All are asked for before any is waited for: a cluster that can grow sees the whole.
            for demand in in_placing_order(demands):
                self._groups[demand.role] = placement_group(
                    list(demand.bundles), strategy=demand.strategy, name=demand.role
                )
            self._wait(demands, deadline)
        except BaseException:
            self.close()
            raise

    def _wait(self, demands: Sequence[RoleDemand], deadline: float) -> None:
        for demand in in_placing_order(demands):
            if not self._groups[demand.role].wait(max(deadline - time.monotonic(), 0.1)):
                self.close()
                raise UserError(_why_not_placed(demand, demands))

    def __getitem__(self, role: str) -> PlacementGroup:
        return self._groups[role]

    def has_all_nodes(self) -> bool:
        """Whether no node that anything is placed on has been lost."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        tables = [placement_group_table(group) for group in self._groups.values()]
        return all(
            node in alive for table in tables for node in table["bundles_to_node_id"].values()
        )

    def close(self) -> None:
        """Give all resources back; actors in the groups end."""
        for group in self._groups.values():
            remove_placement_group(group)
        self._groups.clear()


@contextmanager
def placed(
    config: RunConfig,
    demands: Sequence[RoleDemand],
    *,
    is_local: bool,
    say: Callable[[str], None] = print,
) -> Iterator[Placement]:
    """Placement groups that are gone after the block; `say` takes the lines of the table."""
    timeout = config.placement.placement_timeout
    placement = Placement(demands, timeout, is_local=is_local, say=say)
    try:
        yield placement
    finally:
        placement.close()


def _too_much(shortage: str) -> str:
    return f"the placement asks for {shortage}; lower the counts in placement, or add nodes"


def _why_not_placed(waiting: RoleDemand, demands: Sequence[RoleDemand]) -> str:
    """What is missing, and where, once the run's own groups are gone."""
    shortage = describe_shortage(demands, ray.cluster_resources())
    if shortage:
        return _too_much(shortage)
    time.sleep(_RELEASE_TIME)
    misfit = pack(demands, free_nodes()).misfit
    if misfit:
        return (
            f"{misfit}; end what else runs on the cluster, lower the counts in placement or "
            "rollout, or add nodes (placement.placement_timeout is over)"
        )
    return (
        f"the {waiting.role} was not placed within placement.placement_timeout, though it fits on "
        "what is free now: try again, or raise placement.placement_timeout"
    )
