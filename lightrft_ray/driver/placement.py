"""What each role needs, and placement groups for it."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.reward_sources import RewardModelConfig

Resources = dict[str, float]

# A process without a GPU still computes, but on a laptop all roles must fit on two cores.
_CPU_OF_CPU_WORKER = 0.2
_CPU_OF_GPU_WORKER = 1.0
_LOCAL_TIMEOUT = 10.0  # s: a local Ray has all it will ever have


@dataclass(frozen=True)
class RoleDemand:
    """Processes of one role: a bundle of resources for each."""

    role: str
    bundles: tuple[Resources, ...]

    def total(self, resource: str) -> float:
        """Sum over the role's processes."""
        return _sum(bundle.get(resource, 0.0) for bundle in self.bundles)


def role_demands(config: RunConfig) -> list[RoleDemand]:
    """The roles that a run has, and what they need."""
    place, rollout = config.placement, config.rollout
    learner_gpus = place.actor_num_nodes * place.actor_num_gpus_per_node
    demands = [
        RoleDemand("learner", _processes(learner_gpus, place.cpu_learner_ranks)),
        RoleDemand("generator", (_generator(config),) * rollout.vllm_num_engines),
        RoleDemand("reward", _processes(0, 1)),
    ]
    demands += [
        RoleDemand(reward_model_role(name), (_reward_model(model),) * model.num_workers)
        for name, model in config.reward.models.items()
    ]
    if config.uses_reference:
        gpus = place.ref_num_nodes * place.ref_num_gpus_per_node
        demands.append(RoleDemand("reference", _processes(gpus, place.cpu_ref_workers)))
    if config.uses_critic:
        gpus = place.critic_num_nodes * place.critic_num_gpus_per_node
        demands.append(RoleDemand("critic", _processes(gpus, place.cpu_learner_ranks)))
    return demands


def _processes(gpus: int, cpu_processes: int) -> tuple[Resources, ...]:
    """One process a GPU, or a number of CPU processes where there are no GPUs."""
    if gpus:
        return ({"CPU": _CPU_OF_GPU_WORKER, "GPU": 1.0},) * gpus
    return ({"CPU": _CPU_OF_CPU_WORKER},) * cpu_processes


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


def describe_shortage(demands: list[RoleDemand], supply: Mapping[str, float]) -> str | None:
    """One line for what is asked for beyond `supply`; None where it would fit."""
    parts = []
    for resource in ("GPU", "CPU"):
        asked, there = _sum(d.total(resource) for d in demands), supply.get(resource, 0.0)
        if asked > there:
            by_role = ", ".join(
                f"{d.role} {d.total(resource):g}" for d in demands if d.total(resource)
            )
            parts.append(f"{asked:g} {resource}s ({by_role}) and the cluster has {there:g}")
    return "; ".join(parts) or None


def _sum(amounts: Iterable[float]) -> float:
    """Exact to the ten-thousandths that Ray counts in: 15 · 0.2 CPUs must fit on 3."""
    return round(sum(amounts), 4)


class Placement:
    """Placement groups by role; `close` gives them back."""

    def __init__(self, demands: list[RoleDemand], timeout: float, *, is_local: bool) -> None:
        """Reserve everything. Raises UserError that says what is asked and what is there.

        A cluster may still be growing, so that it has `timeout` seconds; a local Ray has not.
        """
        self._groups: dict[str, PlacementGroup] = {}
        shortage = describe_shortage(demands, ray.cluster_resources())
        if shortage and is_local:
            raise UserError(_too_much(shortage))
        deadline = time.monotonic() + (_LOCAL_TIMEOUT if is_local else timeout)
        try:
            for demand in demands:
                self._groups[demand.role] = self._reserve(demand, demands, deadline)
        except BaseException:
            self.close()
            raise

    def _reserve(
        self, demand: RoleDemand, demands: list[RoleDemand], deadline: float
    ) -> PlacementGroup:
        group = placement_group(list(demand.bundles), strategy="PACK", name=demand.role)
        if not group.wait(max(deadline - time.monotonic(), 0.1)):
            remove_placement_group(group)
            shortage = describe_shortage(demands, ray.cluster_resources())
            free = ", ".join(f"{v:g} {k}" for k, v in _free().items())
            raise UserError(
                _too_much(shortage)
                if shortage
                else f"the {demand.role} found no place for {len(demand.bundles)} processes of "
                f"{demand.bundles[0]} within placement.placement_timeout (free now: {free}); "
                "end what else runs on the cluster, or ask for less"
            )
        return group

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
def placed(config: RunConfig, demands: list[RoleDemand], *, is_local: bool) -> Iterator[Placement]:
    """Placement groups that are gone after the block."""
    timeout = config.placement.placement_timeout
    placement = Placement(demands, timeout, is_local=is_local)
    try:
        yield placement
    finally:
        placement.close()


def _too_much(shortage: str) -> str:
    return f"the placement asks for {shortage}; lower the counts in placement, or add nodes"


def _free() -> dict[str, float]:
    available = ray.available_resources()
    return {resource: available.get(resource, 0.0) for resource in ("GPU", "CPU")}
