"""Whether the checkpoints of a run fit its data, its settings and each other."""

from collections.abc import Mapping, Sequence

from transformers import PretrainedConfig

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.data.processing import Processor, PromptEncoder, tokenizer_of
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.families import WITHOUT_ADAPTERS, check_rows_of_many
from lightrft_ray.models.loading import (
    load_config,
    policy_without_weights,
    sees_images,
    sees_videos,
)
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.trained_part import leave_to_train, trains_all
from lightrft_ray.models.vocabulary import check_vocabulary
from lightrft_ray.workers.devices import model_source


def checkpoint_configs(config: RunConfig) -> dict[str, PretrainedConfig]:
    """Configurations of the checkpoints that the run uses, by setting, the policy's first.

    Raises UserError for one that is not there, or that cannot be placed in positions.
    """
    model = config.model
    used = {"model.pretrain": model.pretrain}
    if config.uses_reference and model.ref_pretrain is not None:
        used["model.ref_pretrain"] = model.ref_pretrain
    if config.uses_critic and model.critic_pretrain is not None:
        used["model.critic_pretrain"] = model.critic_pretrain
    configs = {name: load_config(model_source(config, path), name) for name, path in used.items()}
    for each in configs.values():
        position_rule(each)
    return configs


def check_sight(
    configs: Mapping[str, PretrainedConfig],
    paths: Mapping[str, str],
    prompts: Sequence[Prompt],
) -> None:
    """Raise UserError where a prompt has images or videos that a model does not take."""
    with_images = next((prompt for prompt in prompts if prompt.images), None)
    with_videos = next((prompt for prompt in prompts if prompt.videos), None)
    for name, config in configs.items():
        if with_images is not None and not sees_images(config):
            raise UserError(
                f"{name} {paths[name]} takes text alone, and prompt {with_images.id} has images: "
                "choose a vision-language model, or data without images"
            )
        if with_videos is not None and not sees_videos(config):
            raise UserError(
                f"{name} {paths[name]} takes no videos, and prompt {with_videos.id} has some: "
                "choose a model that does, or data without videos"
            )


def check_blind(config: RunConfig) -> None:
    """Raise UserError where the policy is a vision-language model."""
    path = config.model.pretrain
    if sees_images(load_config(model_source(config, path))):
        raise UserError(
            f"model.pretrain {path} sees images: train it by launch/ppo_vl.py, also on text alone, "
            "or choose a language model"
        )


def check_tokens(
    configs: Mapping[str, PretrainedConfig],
    paths: Mapping[str, str],
    processor: Processor,
    encoder: PromptEncoder,
    prompt: Prompt,
) -> None:
    """Raise UserError where the policy's tokenizer has ids that a model has no row for."""
    used = encoder.token_ids(prompt)
    for name, config in configs.items():
        check_vocabulary(f"{name} {paths[name]}", config, tokenizer_of(processor), used)


def check_trained_part(config: RunConfig) -> None:
    """Raise UserError where parts are frozen, or layers get adapters, that the policy has not."""
    if not trains_all(config.model):
        policy = policy_without_weights(model_source(config, config.model.pretrain))
        leave_to_train(policy, config.model, config.seed)


def check_adapters(config: RunConfig, policy: PretrainedConfig) -> None:
    """Raise UserError where generators are to load adapters that vLLM cannot load."""
    if config.sync.lora_sync == "adapter" and policy.model_type in WITHOUT_ADAPTERS:
        raise UserError(
            f"sync.lora_sync adapter: vLLM loads no adapters for models of the family "
            f"{policy.model_type!r} (model.pretrain {config.model.pretrain}): set sync.lora_sync "
            "to merged"
        )


def check_layout(config: RunConfig, configs: Mapping[str, PretrainedConfig]) -> None:
    """Raise UserError where a model cannot compute the rows that the run lays out."""
    if config.trainer.row_layout != "padded":
        for name, each in configs.items():
            check_rows_of_many(each, name)


def check_tensor_parallel(config: RunConfig, policy: PretrainedConfig) -> None:
    """Raise UserError where the policy's attention does not divide over a generator's GPUs.

    vLLM gives each GPU as many heads; of key-value heads each GPU gets some, or several GPUs one.
    """
    size = config.rollout.vllm_tensor_parallel_size
    text = policy.get_text_config()
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    if _divides(size, heads, kv_heads):
        return
    fitting = [each for each in range(1, heads + 1) if _divides(each, heads, kv_heads)]
    raise UserError(
        f"rollout.vllm_tensor_parallel_size {size} does not divide the {heads} attention heads and "
        f"{kv_heads} key-value heads of model.pretrain {config.model.pretrain}: set it to one of "
        f"{', '.join(map(str, fitting))}"
    )


def _divides(size: int, heads: int, kv_heads: int) -> bool:
    return heads % size == 0 and max(size, kv_heads) % min(size, kv_heads) == 0
