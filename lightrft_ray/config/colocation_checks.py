"""Contradictions of settings with `placement.colocate`.

Raises a ValueError of one line that names the settings and the remedy.
"""

from collections.abc import Set

from lightrft_ray.config.evaluation import EvaluationConfig
from lightrft_ray.config.placement import PlacementConfig
from lightrft_ray.config.rollout import RolloutConfig
from lightrft_ray.config.trainer import TrainerConfig

OFFLOADED_STAGES = (1, 2)
"""ZeRO stages whose states DeepSpeed moves to the host with the optimizer that runs use."""


def check_colocation(
    placement: PlacementConfig,
    rollout: RolloutConfig,
    trainer: TrainerConfig,
    evaluation: EvaluationConfig,
    guests: Set[str],
) -> None:
    """Those that share devices take turns, in as many processes; `guests` are with the learner."""
    if placement.colocate == "none":
        return
    chosen = f"placement.colocate {placement.colocate}"
    if rollout.max_staleness > 0:
        raise ValueError(
            f"{chosen} has generation and learning take turns, and rollout.max_staleness "
            f"{rollout.max_staleness} has them overlap: set placement.colocate to none, or "
            "rollout.max_staleness to 0"
        )
    if evaluation.eval_ema:
        raise ValueError(
            f"{chosen} has the learner away while generators evaluate, and evaluation.eval_ema "
            "swaps its weights then: set placement.colocate to none, or evaluation.eval_ema to "
            "false"
        )
    for role in sorted(guests):
        if role in placement.resources or role in placement.strategies:
            raise ValueError(
                f"{chosen} places the {role} with the learner: leave it out of "
                "placement.resources and placement.strategies, or set placement.colocate to none"
            )
    _check_generators(chosen, placement, rollout)
    _check_scorers(chosen, placement, guests)
    gpus = placement.actor_num_gpus_per_node
    if gpus > 0 and trainer.zero_stage not in OFFLOADED_STAGES:
        raise ValueError(
            f"{chosen} moves the learner's states to the host, which DeepSpeed does not do with "
            f"trainer.zero_stage {trainer.zero_stage}: set trainer.zero_stage to "
            f"{' or '.join(map(str, OFFLOADED_STAGES))}, or placement.colocate to none"
        )


def _check_generators(chosen: str, placement: PlacementConfig, rollout: RolloutConfig) -> None:
    gpus = placement.actor_num_gpus_per_node
    if placement.vllm_use_gpu != (gpus > 0):
        wanted = str(gpus > 0).lower()
        raise ValueError(
            f"{chosen} needs learner and generators on the same kind of device: set "
            f"placement.vllm_use_gpu to {wanted}, or placement.colocate to none"
        )
    ranks = placement.actor_num_nodes * gpus or placement.cpu_learner_ranks
    shards = rollout.vllm_tensor_parallel_size
    if (gpus or 1) % shards:
        raise ValueError(
            f"{chosen}: the {shards} processes of a generator (rollout.vllm_tensor_parallel_size) "
            f"do not divide the {gpus or 1} of the learner beside each other: set "
            "rollout.vllm_tensor_parallel_size to a divisor, or placement.colocate to none"
        )
    if rollout.vllm_num_engines * shards != ranks:
        raise ValueError(
            f"{chosen} has {ranks} learner ranks share with as many processes of generators: set "
            f"rollout.vllm_num_engines to {ranks // shards}, or placement.colocate to none"
        )


def _check_scorers(chosen: str, placement: PlacementConfig, guests: Set[str]) -> None:
    """Reference and critic have a process beside each of the learner's."""
    wanted = (placement.actor_num_nodes, placement.actor_num_gpus_per_node)
    for role, group in (("reference", "ref"), ("critic", "critic")):
        own = tuple(
            getattr(placement, f"{group}_num_{unit}") for unit in ("nodes", "gpus_per_node")
        )
        if role in guests and own != wanted:
            raise ValueError(
                f"{chosen} has a process of the {role} beside each of the learner: set "
                f"placement.{group}_num_nodes to {wanted[0]} and "
                f"placement.{group}_num_gpus_per_node to {wanted[1]}, or placement.colocate to "
                "learner_generator"
            )
    ranks = placement.cpu_learner_ranks
    is_on_cpu = placement.actor_num_gpus_per_node == 0
    if "reference" in guests and is_on_cpu and placement.cpu_ref_workers != ranks:
        raise ValueError(
            f"{chosen} has a process of the reference beside each of the learner: set "
            f"placement.cpu_ref_workers to {ranks}, or placement.colocate to learner_generator"
        )
