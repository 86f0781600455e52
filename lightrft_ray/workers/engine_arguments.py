"""How a generator's vLLM engine is set up."""

from vllm import AsyncEngineArgs

from lightrft_ray.config import RunConfig
from lightrft_ray.sync.plugin import OBJECT_STORE

_CPU_BATCHED_TOKENS = 16384


def engine_arguments(config: RunConfig, max_images: int) -> AsyncEngineArgs:
    """vLLM's arguments for a run.

    `max_images` is the largest number of images of a prompt (0 for text).
    """
    rollout, length = config.rollout, config.data.prompt_max_len + config.rollout.generate_max_len
    if config.evaluation.eval_generate_max_len is not None:
        length = max(
            length, config.data.prompt_max_len + config.evaluation.eval_generate_max_len
        )
    return AsyncEngineArgs(
        model=config.model.pretrain,
        trust_remote_code=config.model.trust_remote_code,
        dtype=config.model.dtype,
        seed=config.seed,
        max_model_len=length,
        max_num_seqs=rollout.vllm_max_num_seqs,
        tensor_parallel_size=rollout.vllm_tensor_parallel_size,
        enforce_eager=rollout.vllm_enforce_eager,
        # Log-probs are of the sampled distribution: after temperature and forbidden ids.
        logprobs_mode="processed_logprobs",
        weight_transfer_config={"backend": OBJECT_STORE},
        **_media_arguments(max_images),
        **(_gpu_arguments(config) if config.placement.vllm_use_gpu else _cpu_arguments(length)),
    )


def _media_arguments(max_images: int) -> dict[str, object]:
    if max_images == 0:
        return {}
    return {
        "limit_mm_per_prompt": {"image": max_images},
        # Processed pixels must come with every prompt, for the models that score and learn, and
        # normalized, as those models take them.
        "mm_processor_cache_gb": 0,
        "mm_device_do_normalize": False,
    }


def _cpu_arguments(max_model_len: int) -> dict[str, object]:
    """On CPU, vLLM fails when a seeded request's prefill is cut in two: prefill whole prompts."""
    return {
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(_CPU_BATCHED_TOKENS, max_model_len),
    }


def _gpu_arguments(config: RunConfig) -> dict[str, object]:
    return {"gpu_memory_utilization": config.rollout.vllm_gpu_memory_utilization}
