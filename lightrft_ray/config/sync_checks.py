"""Contradictions of settings with how weights are published.

Each function raises a ValueError of one line that names the settings and the remedy.
"""

from lightrft_ray.config.fields import reject_changed
from lightrft_ray.config.model import ModelConfig
from lightrft_ray.config.placement import PlacementConfig
from lightrft_ray.config.sync import SyncConfig

HIGHEST_RANK = 512
"""Of the adapters that vLLM loads."""


def check_lora_sync(sync: SyncConfig, model: ModelConfig) -> None:
    """Only adapters that there are can be published, and only as large ones as vLLM takes."""
    if model.lora_rank == 0:
        reject_changed(sync, "sync.lora_sync", "model.lora_rank 0", "model.lora_rank to 1 or more")
    elif sync.lora_sync == "adapter" and model.lora_rank > HIGHEST_RANK:
        raise ValueError(
            f"sync.lora_sync adapter: vLLM loads adapters of ranks up to {HIGHEST_RANK}, and "
            f"model.lora_rank is {model.lora_rank}: set sync.lora_sync to merged, or "
            f"model.lora_rank to {HIGHEST_RANK} or less"
        )


def check_transport(sync: SyncConfig, placement: PlacementConfig) -> None:
    """Between GPUs only what lies there travels, and each such transport is for one placement."""
    transport = sync.transport
    if transport == "object_store":
        return
    if placement.actor_num_gpus_per_node == 0 or not placement.vllm_use_gpu:
        raise ValueError(
            f"sync.transport {transport} runs between GPUs: set sync.transport to object_store, or "
            "placement.actor_num_gpus_per_node to 1 or more and placement.vllm_use_gpu to true"
        )
    if sync.lora_sync == "adapter":
        raise ValueError(
            f"sync.transport {transport} carries whole weights, and sync.lora_sync adapter sends "
            "none: set sync.transport to object_store, or sync.lora_sync to merged"
        )
    if transport == "nccl" and placement.colocate != "none":
        raise ValueError(
            "sync.transport nccl is for learner and generators on GPUs of their own, and "
            f"placement.colocate {placement.colocate} has them share: set sync.transport to ipc or "
            "object_store, or placement.colocate to none"
        )
    if transport == "ipc" and placement.colocate == "none":
        raise ValueError(
            "sync.transport ipc is for learner and generators that share GPUs: set sync.transport "
            "to nccl or object_store, or placement.colocate to learner_generator"
        )
