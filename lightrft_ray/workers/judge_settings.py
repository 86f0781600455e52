"""A judge's engine in the terms of a run's settings; importable without vLLM."""

from lightrft_ray.config import RunConfig
from lightrft_ray.config.reward_sources import RewardModelConfig
from lightrft_ray.models.judge_prompts import JudgeTemplate
from lightrft_ray.models.verdicts import VerdictRule


def engine_config(config: RunConfig, judge: RewardModelConfig) -> RunConfig:
    """The run's settings with the judge in the generator's place."""
    sections = {
        "model": {"pretrain": judge.pretrain, "dtype": judge.dtype},
        "data": {
            "system_prompt": None,
            "prompt_max_len": judge.max_model_len - judge.max_new_tokens,
        },
        "rollout": {
            "generate_max_len": judge.max_new_tokens,
            "vllm_dtype": None,
            "vllm_gpu_memory_utilization": judge.gpu_memory_utilization,
            "vllm_tensor_parallel_size": max(int(judge.gpus_per_worker), 1),
        },
        # The limits are the policy's; the judge's processor has its own.
        "media": {"image_min_pixels": None, "image_max_pixels": None},
        "evaluation": {"eval_generate_max_len": None},
        "sync": {"lora_sync": "merged", "transport": "object_store"},
        "placement": {"vllm_use_gpu": judge.gpus_per_worker > 0, "colocate": "none"},
    }
    changed = {
        name: getattr(config, name).model_copy(update=update) for name, update in sections.items()
    }
    return config.model_copy(update=changed)


def judge_template(judge: RewardModelConfig) -> JudgeTemplate:
    """What the judge is asked. Raises UserError for unknown fields."""
    return JudgeTemplate(judge.template or "")


def verdict_rule(judge: RewardModelConfig) -> VerdictRule:
    """How its answers are read. Raises UserError for a pattern that is none."""
    if judge.verdict_pattern is None:
        return VerdictRule(scores=judge.verdict_scores)
    return VerdictRule(judge.verdict_pattern, judge.verdict_scores)
