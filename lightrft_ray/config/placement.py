"""Settings of processes and GPUs."""

from typing import Self

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import Section


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
    placement_timeout: PositiveFloat = 60
    """Seconds to wait for the cluster to provide the processes and GPUs."""
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
