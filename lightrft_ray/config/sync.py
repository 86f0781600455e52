"""Settings of weight publication."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from lightrft_ray.config.fields import Section


class SyncConfig(Section):
    """Publication of weights from the learners to the generators."""

    transport: Literal["object_store", "nccl", "ipc"] = "object_store"
    """How weights travel: through Ray's object store, between GPUs, or (ipc) within shared GPUs."""
    lora_sync: Literal["merged", "adapter"] = "merged"
    """Publish adapters merged into the weights, or alone, for vLLM to add (model.lora_rank > 0)."""
    bucket_mb: PositiveInt = 256
    """Size of one bucket of weights in MB."""
    publish_timeout: PositiveFloat = 120
    """Seconds to wait for a publication."""
    canary_max_abs_diff: PositiveFloat = 1e-3
    """Log-prob gap of learner and generator past which the run stops (bfloat16: set it higher)."""

    @property
    def bucket_bytes(self) -> int:
        """`bucket_mb` in bytes."""
        return self.bucket_mb * 10**6
