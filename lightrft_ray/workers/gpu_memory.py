"""GPU memory of a worker's phases, in MB (10⁶ bytes); None for a worker without a GPU."""

from importlib.util import find_spec
from typing import Protocol

import torch

_NVML = "pynvml"


class GpuMemory(Protocol):
    """Where a worker's GPU memory is read."""

    def begin(self) -> None:
        """A phase begins."""

    def end_mb(self) -> float | None:
        """What it took, at its end."""


class OwnTensors:
    """The peak of this process's tensors in a phase, by PyTorch's allocator."""

    def begin(self) -> None:
        """Forget the peak so far."""
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()

    def end_mb(self) -> float | None:
        """The peak since."""
        return torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_initialized() else None


class EngineGpus:
    """What the fullest GPU of an engine holds at the end of a phase, whoever put it there.

    The engine's tensors are those of other processes, which give vLLM's share of the GPU away to
    nobody: no peak is missed. This process makes no CUDA context for it, which takes memory itself.
    """

    def __init__(self, *, uses_gpu: bool) -> None:
        self._is_readable = uses_gpu and find_spec(_NVML) is not None

    def begin(self) -> None:
        """Nothing has to be forgotten."""

    def end_mb(self) -> float | None:
        """Of the fullest; None also where NVIDIA's library to ask is not installed."""
        if not self._is_readable:
            return None
        gpus = range(torch.cuda.device_count())
        return max(torch.cuda.device_memory_used(gpu) for gpu in gpus) / 1e6
