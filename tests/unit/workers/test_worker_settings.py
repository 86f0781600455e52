"""What workers are told about devices, checkpoints and environments."""

import pytest
import torch

from lightrft_ray.config import ModelConfig, PlacementConfig, RolloutConfig, RunConfig
from lightrft_ray.models.loading import ModelSource
from lightrft_ray.workers.devices import model_source, prepare_device
from lightrft_ray.workers.engine_environment import engine_environment


@pytest.mark.parametrize(
    ("name", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_checkpoints_are_loaded_as_configured(name: str, dtype: torch.dtype) -> None:
    model = ModelConfig(dtype=name, attn_implementation="eager", trust_remote_code=True)
    assert model_source(RunConfig(model=model), "some/path") == ModelSource(
        "some/path", dtype, attn_implementation="eager", trust_remote_code=True
    )


def test_cpu_workers_take_their_threads() -> None:
    before = torch.get_num_threads()
    try:
        config = RunConfig(placement=PlacementConfig(cpu_threads_per_worker=1))
        assert prepare_device(config, uses_gpu=False) == torch.device("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_engines_on_cpu_get_their_cache_and_no_compiler() -> None:
    rollout = RolloutConfig(vllm_kv_cache_gb=3)
    on_cpu = engine_environment(RunConfig(rollout=rollout))
    assert on_cpu["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert on_cpu["TORCHDYNAMO_DISABLE"] == "1"
    on_gpu = engine_environment(
        RunConfig(rollout=rollout, placement=PlacementConfig(vllm_use_gpu=True))
    )
    assert on_cpu.keys() - on_gpu.keys() == {"VLLM_CPU_KVCACHE_SPACE", "TORCHDYNAMO_DISABLE"}
