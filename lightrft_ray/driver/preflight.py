"""All that can be known to be wrong before a model is loaded or a process started."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from transformers import PretrainedConfig

from lightrft_ray.config import ModelConfig, RunConfig, UserError
from lightrft_ray.config.sections import EvaluationSet
from lightrft_ray.data.digits import DigitsDataset
from lightrft_ray.data.embedded import is_embedded, resolve_embedded
from lightrft_ray.data.processing import (
    PromptEncoder,
    load_processor,
    tokenizer_of,
)
from lightrft_ray.data.prompts import Prompt, PromptKeys, read_prompts
from lightrft_ray.models.families import forbidden_token_ids
from lightrft_ray.models.loading import load_config, sees_images
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.workers.devices import model_source


@dataclass(frozen=True)
class RunInputs:
    """What a run works on, checked: prompts, and what workers must know of the model."""

    train_prompts: tuple[Prompt, ...]
    eval_prompts: tuple[Prompt, ...]
    eval_sets: Mapping[str, tuple[Prompt, ...]]
    bad_rows: int
    sampling: Sampling
    pad_token_id: int
    stop_token_id: int
    canary_answer: tuple[int, ...]

    @property
    def max_images(self) -> int:
        """The largest number of images of a prompt."""
        more = [prompt for prompts in self.eval_sets.values() for prompt in prompts]
        all_prompts = (*self.train_prompts, *self.eval_prompts, *more)
        return max(len(prompt.images) for prompt in all_prompts)


def resolve_checkpoints(config: RunConfig) -> RunConfig:
    """The configuration with embedded checkpoints replaced by their folders, built if need be."""
    cache = _cache_dir(config)
    names = ("pretrain", "ref_pretrain", "critic_pretrain")
    resolved = {
        name: str(resolve_embedded(path, cache))
        for name in names
        if (path := getattr(config.model, name)) is not None and is_embedded(path)
    }
    return config.model_copy(update={"model": config.model.model_copy(update=resolved)})


def check_inputs(config: RunConfig) -> RunInputs:
    """Read the data and check model and reward. `config` comes from `resolve_checkpoints`.

    Raises UserError for what is missing or does not fit.
    """
    load_reward(config.reward.reward_fn)
    train, evaluation, bad_rows = _read_data(config)
    sets = {name: _read_set(config, each) for name, each in config.evaluation.eval_sets.items()}
    model = config.model
    hf_config = _check_checkpoints(config)
    held_out = [*evaluation, *(prompt for prompts in sets.values() for prompt in prompts)]
    _check_images(model, sees_images(hf_config), [*train, *held_out])
    processor = load_processor(model.pretrain, model.trust_remote_code)
    PromptEncoder(processor, config.data.system_prompt, config.data.prompt_max_len)
    tokenizer = tokenizer_of(processor)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    answer = tokenizer(train[0].reference or "?", add_special_tokens=False)["input_ids"]
    return RunInputs(
        train_prompts=tuple(train),
        eval_prompts=tuple(evaluation),
        eval_sets=sets,
        bad_rows=bad_rows,
        sampling=Sampling(config.rollout.temperature, forbidden_token_ids(hf_config)),
        pad_token_id=int(pad),
        stop_token_id=int(tokenizer.eos_token_id),
        canary_answer=tuple(answer[: config.rollout.generate_max_len]),
    )


def _check_checkpoints(config: RunConfig) -> PretrainedConfig:
    """The policy's configuration; all checkpoints that the run uses must be there."""
    model = config.model
    used = {"model.pretrain": model.pretrain}
    if config.uses_reference and model.ref_pretrain is not None:
        used["model.ref_pretrain"] = model.ref_pretrain
    if config.uses_critic and model.critic_pretrain is not None:
        used["model.critic_pretrain"] = model.critic_pretrain
    configs = [load_config(model_source(config, path), name) for name, path in used.items()]
    for each in configs:
        position_rule(each)
    return configs[0]


def _read_data(config: RunConfig) -> tuple[list[Prompt], list[Prompt], int]:
    train_file, eval_file = _data_files(config)
    train, train_bad = _read(config, train_file, config.data.max_samples)
    if eval_file is None:
        return train, [], train_bad
    evaluation, eval_bad = _read(config, eval_file, config.data.eval_max_samples)
    return train, evaluation, train_bad + eval_bad


def _read_set(config: RunConfig, chosen: EvaluationSet) -> tuple[Prompt, ...]:
    path = Path(chosen.data)
    if is_embedded(chosen.data):
        path = DigitsDataset(resolve_embedded(chosen.data, _cache_dir(config))).eval_file
    return tuple(_read(config, path, chosen.max_samples)[0])


def _data_files(config: RunConfig) -> tuple[Path, Path | None]:
    data, cache = config.data, _cache_dir(config)
    held_out = data.eval_data
    if not is_embedded(data.prompt_data):
        train = Path(data.prompt_data)
    else:
        dataset = DigitsDataset(resolve_embedded(data.prompt_data, cache))
        train = dataset.train_file
        held_out = held_out or data.prompt_data
    if held_out is None:
        return train, None
    if is_embedded(held_out):
        return train, DigitsDataset(resolve_embedded(held_out, cache)).eval_file
    return train, Path(held_out)


def _read(config: RunConfig, path: Path, limit: int | None) -> tuple[list[Prompt], int]:
    data = config.data
    keys = PromptKeys(data.input_key, data.image_key, data.reference_key, data.label_key)
    root = None if data.image_root is None else Path(data.image_root)
    prompts, bad = read_prompts(path, keys, root, data.max_bad_fraction)
    return prompts[:limit], len(bad)


def _check_images(model: ModelConfig, can_see: bool, prompts: list[Prompt]) -> None:
    with_images = next((prompt for prompt in prompts if prompt.images), None)
    if with_images is not None and not can_see:
        raise UserError(
            f"model.pretrain {model.pretrain} takes text alone, and prompt {with_images.id} has "
            "images: choose a vision-language model, or data without images"
        )


def _cache_dir(config: RunConfig) -> Path | None:
    return None if config.data.cache_dir is None else Path(config.data.cache_dir)
