"""How a generator's vLLM engine is set up."""

from collections.abc import Mapping

from vllm import AsyncEngineArgs
from vllm.config import WeightTransferConfig

from lightrft_ray.config import RunConfig
from lightrft_ray.sync.plugin import OBJECT_STORE
from lightrft_ray.workers.engine_scheduler import whole_media_scheduler
from lightrft_ray.workers.hot_first_token import HotFirstToken

_CPU_BATCHED_TOKENS = 16384


def engine_arguments(
    config: RunConfig, max_media: Mapping[str, int], pixel_limits: Mapping[str, object]
) -> AsyncEngineArgs:
    """vLLM's arguments for a run.

    `max_media` has the largest number of images and videos of a prompt, `pixel_limits` what the
    processor is told of their sizes: vLLM's renderer runs it, for all models of the run.
    """
    arguments = AsyncEngineArgs(
        model=config.model.pretrain,
        trust_remote_code=config.model.trust_remote_code,
        dtype=config.model.dtype,
        seed=config.seed,
        max_model_len=_longest_sequence(config),
        max_num_seqs=config.rollout.vllm_max_num_seqs,
        tensor_parallel_size=config.rollout.vllm_tensor_parallel_size,
        enforce_eager=config.rollout.vllm_enforce_eager,
        # Log-probs are of the sampled distribution: after temperature and forbidden ids.
        logprobs_mode="processed_logprobs",
        weight_transfer_config=WeightTransferConfig(backend=OBJECT_STORE),
    )
    if config.rollout.use_fire:
        arguments.logits_processors = [f"{HotFirstToken.__module__}:{HotFirstToken.__qualname__}"]
    if any(max_media.values()):
        arguments.limit_mm_per_prompt = {name: count for name, count in max_media.items() if count}
        arguments.mm_processor_kwargs = dict(pixel_limits) or None
        # Processed pixels must come with every prompt, for the models that score and learn, and
        # normalized, as those models take them.
        arguments.mm_processor_cache_gb = 0
        arguments.mm_device_do_normalize = False
        if config.rollout.max_staleness > 0:
            arguments.scheduler_cls = (
                f"{whole_media_scheduler.__module__}.{whole_media_scheduler.__qualname__}"
            )
    if config.placement.vllm_use_gpu:
        arguments.gpu_memory_utilization = config.rollout.vllm_gpu_memory_utilization
    else:
        # On CPU, vLLM fails when the prefill of a seeded request is cut in two.
        # The samples of a prompt share its key-value cache in whole blocks only: of the default of
        # 128 tokens, short prompts share none and are computed n times. 32 is the least it takes.
        arguments.block_size = 32
        arguments.enable_chunked_prefill = False
        arguments.max_num_batched_tokens = max(_CPU_BATCHED_TOKENS, _longest_sequence(config))
    return arguments


def _longest_sequence(config: RunConfig) -> int:
    """Tokens of the longest prompt with the longest response, in training or evaluation."""
    training = config.rollout.generate_max_len
    return config.data.prompt_max_len + max(training, config.evaluation.longest(training))
