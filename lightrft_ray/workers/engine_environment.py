"""Environment variables of a generator's processes; importable without vLLM."""

from lightrft_ray.config import RunConfig


def engine_environment(config: RunConfig) -> dict[str, str]:
    """Environment variables of a generator's processes, set before vLLM is imported."""
    common = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if config.sync.transport == "ipc":
        common["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # CUDA's handles come pickled
    if config.placement.vllm_use_gpu:
        return common
    return common | {
        "VLLM_CPU_KVCACHE_SPACE": str(config.rollout.vllm_kv_cache_gb),
        # Without this each new shape is compiled for tens of seconds.
        "TORCHDYNAMO_DISABLE": "1",
    }
