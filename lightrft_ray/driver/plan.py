"""What a run would take: processes, nodes and memory, and what would fail or is worth knowing."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings
from lightrft_ray.driver.packing import Node, Packing, RoleDemand, pack
from lightrft_ray.driver.placement import role_demands
from lightrft_ray.driver.plan_memory import GB
from lightrft_ray.driver.plan_roles import Hardware, Lengths, RoleEstimator, RolePlan
from lightrft_ray.workers.sequence_limits import longest_sequence

_NEARLY_FULL = 0.9  # of a GPU: the allocator's own waste wants the rest
_PLENTY = 1e6  # of what a planned node has besides GPUs
_RAY_OBJECT_STORE_LIMIT = 200 * GB  # Ray's default is 30% of the memory, and never more
_REMEDIES = {
    "generator": "a higher rollout.vllm_tensor_parallel_size",
    "reference": "a smaller trainer.micro_rollout_batch_size, or larger GPUs",
    "reward_model": "a smaller micro_batch_size, or larger GPUs",
}
_REMEDY_OF_TRAINED = (
    "more GPUs for it under trainer.zero_stage 3, model.gradient_checkpointing, or a smaller "
    "trainer.micro_train_batch_size"
)


@dataclass(frozen=True)
class Plan:
    """The layout of a run, its memory, what would fail and what to know of."""

    demands: tuple[RoleDemand, ...]
    packing: Packing
    n_nodes: int
    roles: tuple[RolePlan, ...]
    published_bytes: float
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def make_plan(
    config: RunConfig, hardware: Hardware | None = None, lengths: Lengths | None = None
) -> Plan:
    """Plan a run. Raises UserError for settings that cannot work together with the model."""
    hardware = hardware or Hardware()
    estimator = RoleEstimator(config, hardware, lengths or Lengths())
    roles = tuple(estimator.estimates())
    demands = tuple(role_demands(config))
    n_nodes, packing = _needed_nodes(demands, hardware)
    cached, longest = estimator.cached_tokens(), longest_sequence(config)
    problems = [packing.misfit] if packing.misfit else []
    problems += [text for role in roles for text in _does_not_fit(role, hardware)]
    problems += _do_not_share(config, roles, hardware)
    problems += _too_small_cache(cached, longest)
    notes = [text for role in roles for text in _nearly_full(role, hardware)]
    notes += _large_publication(estimator.published_bytes)
    notes += _few_sequences(cached, longest, config.rollout.vllm_max_num_seqs)
    return Plan(
        demands,
        packing,
        n_nodes,
        roles,
        estimator.published_bytes,
        tuple(problems),
        (*notes, *warnings(config)),
    )


def _needed_nodes(demands: Sequence[RoleDemand], hardware: Hardware) -> tuple[int, Packing]:
    """The least number of nodes that all bundles fit on, and how; or a packing with a misfit."""
    names = {name for demand in demands for bundle in demand.bundles for name in bundle}
    node = dict.fromkeys(names, _PLENTY) | {"GPU": float(hardware.gpus_per_node)}
    gpus = sum(demand.total("GPU") for demand in demands)
    least = max(1, -(-int(gpus) // hardware.gpus_per_node))
    most = sum(len(demand.bundles) for demand in demands)  # a node for each
    for count in range(least, max(least, most) + 1):
        packing = pack(demands, [Node(f"node {index + 1}", node) for index in range(count)])
        if packing.misfit is None:
            break
    return count, packing


def _does_not_fit(role: RolePlan, hardware: Hardware) -> list[str]:
    if role.device == "CPU" or role.memory.total <= hardware.gpu_gb * GB:
        return []
    remedy = _REMEDIES.get(role.role.partition(".")[0], _REMEDY_OF_TRAINED)
    return [
        f"the {role.role} needs {role.memory.total / GB:.1f} GB of a GPU's {hardware.gpu_gb:g} GB: "
        f"{remedy}"
    ]


def _do_not_share(config: RunConfig, roles: Sequence[RolePlan], hardware: Hardware) -> list[str]:
    """Learner and generator take turns on their GPU, but both hold weights during a publication."""
    if config.placement.colocate == "none" or not config.placement.vllm_use_gpu:
        return []
    held = {role.role: role.memory.held for role in roles}
    both = sum(
        held[role][part] for role in ("learner", "generator") for part in ("libraries", "weights")
    )
    if both <= hardware.gpu_gb * GB:
        return []
    return [
        f"while weights are published, learner and generator hold {both / GB:.1f} GB of a GPU's "
        f"{hardware.gpu_gb:g} GB: set placement.colocate to none, or take larger GPUs"
    ]


def _nearly_full(role: RolePlan, hardware: Hardware) -> list[str]:
    limit = hardware.gpu_gb * GB
    # vLLM takes the share that it is given, and no more.
    is_engine = "KV cache" in role.memory.held
    if role.device == "CPU" or is_engine or not _NEARLY_FULL * limit < role.memory.total <= limit:
        return []
    return [
        f"the {role.role} takes {role.memory.total / GB:.1f} GB of a GPU's {hardware.gpu_gb:g} GB, "
        "which leaves little for the allocator's own waste"
    ]


def _too_small_cache(cached: float | None, longest: int) -> list[str]:
    if cached is None or cached >= longest:
        return []
    return [
        f"a generator's key-value cache holds {cached:,.0f} tokens and the longest sequence has "
        f"{longest:,}: raise rollout.vllm_tensor_parallel_size or "
        "rollout.vllm_gpu_memory_utilization, or lower the lengths"
    ]


def _few_sequences(cached: float | None, longest: int, wished: int) -> list[str]:
    if cached is None or not longest <= cached < wished * longest:
        return []
    return [
        f"a generator's key-value cache holds {int(cached // longest)} sequences of full length, "
        f"fewer than rollout.vllm_max_num_seqs {wished}: some wait when responses are long"
    ]


def _large_publication(published: float) -> list[str]:
    if published <= _RAY_OBJECT_STORE_LIMIT / 2:
        return []
    return [
        f"published weights take {published / GB:.0f} GB of the object store on the first "
        "learner's node and on each generator's: Ray takes 30% of the memory, at most "
        f"{_RAY_OBJECT_STORE_LIMIT / GB:.0f} GB, unless `ray start --object-store-memory` says more"
    ]
