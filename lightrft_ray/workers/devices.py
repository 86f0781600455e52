"""The device of a worker's model, and how its checkpoint is loaded."""

from typing import Literal

import torch

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import ModelSource


def prepare_device(config: RunConfig, *, uses_gpu: bool) -> torch.device:
    """The worker's device: the GPU that Ray made visible to it, or the CPU with its threads."""
    if uses_gpu:
        torch.cuda.set_device(0)
        return torch.device("cuda", 0)
    torch.set_num_threads(config.placement.cpu_threads_per_worker)
    return torch.device("cpu")


def model_source(config: RunConfig, path: str) -> ModelSource:
    """How a worker loads the checkpoint at `path`."""
    model = config.model
    return ModelSource(
        path=path,
        dtype=torch_dtype(model.dtype),
        attn_implementation=model.attn_implementation,
        trust_remote_code=model.trust_remote_code,
    )


def torch_dtype(name: Literal["float32", "bfloat16"]) -> torch.dtype:
    """What PyTorch calls a type of the settings."""
    return torch.float32 if name == "float32" else torch.bfloat16
