"""Contradictions of settings with how weights are published.

Each function raises a ValueError of one line that names the settings and the remedy.
"""

from lightrft_ray.config.fields import reject_changed
from lightrft_ray.config.model import ModelConfig
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
