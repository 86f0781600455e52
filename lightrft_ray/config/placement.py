"""Settings of processes and GPUs."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import Section

Role = Literal["learner", "generator", "reference", "critic", "reward", "reward_model"]
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


class PlacementConfig(Section):
    """Processes and GPUs of each model."""

    actor_num_nodes: PositiveInt = 1
    """Nodes of the learners (GPU only)."""
    actor_num_gpus_per_node: NonNegativeInt = 0
    """GPUs of the learners on each node (0: CPU processes)."""
    critic_num_nodes: PositiveInt = 1
    """Nodes of the critic (GPU only)."""
    critic_num_gpus_per_node: NonNegativeInt = 0
    """GPUs of the critic on each node (0: CPU processes)."""
    ref_num_nodes: PositiveInt = 1
    """Nodes of the reference (GPU only)."""
    ref_num_gpus_per_node: NonNegativeInt = 0
    """GPUs of the reference on each node (0: CPU processes)."""
    cpu_learner_ranks: PositiveInt = 1
    """Processes of the learner, and as many of the critic, where they have no GPUs."""
    cpu_ref_workers: PositiveInt = 1
    """Reference processes when ref_num_gpus_per_node is 0."""
    vllm_use_gpu: bool = False
    """Give each generator vllm_tensor_parallel_size GPUs (false: CPU)."""
    resources: dict[Role, dict[str, PositiveFloat]] = Field(default={})
    """Custom Ray resources that each process of a role takes beside CPUs and GPUs."""
    strategies: dict[Role, Strategy] = Field(default={})
    """How Ray spreads a role over nodes (PACK where none is named)."""
    placement_timeout: PositiveFloat = 60
    """Seconds to wait for the cluster to provide the processes and GPUs."""
    colocate: Literal["none", "learner_generator", "all"] = "none"
    """Have generators (all: reference and critic, too) take turns with the learner on its GPUs."""
    cpu_threads_per_worker: PositiveInt = 2
    """PyTorch threads of each CPU process."""

    @model_validator(mode="after")
    def _counts_fit_the_kind_of_process(self) -> Self:
        for group in ("actor", "critic", "ref"):
            nodes, gpus = f"{group}_num_nodes", f"{group}_num_gpus_per_node"
            if getattr(self, gpus) == 0 and getattr(self, nodes) > 1:
                raise ValueError(
                    f"placement.{nodes} does nothing without GPUs: "
                    f"set placement.{gpus} to 1 or more, or placement.{nodes} to 1"
                )
        if self.ref_num_gpus_per_node > 0 and self.cpu_ref_workers > 1:
            raise ValueError(
                "placement.cpu_ref_workers does nothing with GPUs: "
                "set placement.ref_num_gpus_per_node to 0, or placement.cpu_ref_workers to 1"
            )
        return self

    @model_validator(mode="after")
    def _custom_resources_are_custom(self) -> Self:
        for role, resources in self.resources.items():
            for name in {"CPU", "GPU", "memory", "object_store_memory"} & resources.keys():
                raise ValueError(
                    f"placement.resources of the {role} cannot set {name}: the counts of "
                    "processes and GPUs in placement do; name a custom resource of your nodes"
                )
        return self
