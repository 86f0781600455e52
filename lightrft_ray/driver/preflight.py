"""All that can be known to be wrong before a model is loaded or a process started."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from lightrft_ray.config import RunConfig
from lightrft_ray.config.evaluation import EvaluationSet
from lightrft_ray.data.demonstrations import Demonstration, read_demonstrations
from lightrft_ray.data.embedded import is_embedded, resolve_embedded
from lightrft_ray.data.processing import (
    PromptEncoder,
    load_processor,
    pixel_limits,
    tokenizer_of,
)
from lightrft_ray.data.prompts import Prompt, PromptKeys, read_prompts
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.driver.model_checks import (
    check_freezing,
    check_layout,
    check_sight,
    check_tensor_parallel,
    check_tokens,
    checkpoint_configs,
)
from lightrft_ray.driver.reward_checks import check_rewards
from lightrft_ray.models.families import forbidden_token_ids
from lightrft_ray.models.routers import check_routers
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.rewards.recipes import check_labels


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
    demonstrations: tuple[Demonstration, ...] = ()

    @property
    def max_images(self) -> int:
        """The largest number of images of a prompt."""
        return max(len(prompt.images) for prompt in self._all_prompts())

    @property
    def max_videos(self) -> int:
        """The largest number of videos of a prompt."""
        return max(len(prompt.videos) for prompt in self._all_prompts())

    def _all_prompts(self) -> tuple[Prompt, ...]:
        taught = [each.prompt for each in self.demonstrations]
        more = [prompt for prompts in self.eval_sets.values() for prompt in prompts]
        return (*self.train_prompts, *self.eval_prompts, *taught, *more)


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
    check_rewards(config)
    train, evaluation, bad_rows = _read_data(config)
    sets = {name: _read_set(config, each) for name, each in config.evaluation.eval_sets.items()}
    held_out = [*evaluation, *(prompt for prompts in sets.values() for prompt in prompts)]
    check_labels(config.reward, (prompt.label for prompt in (*train, *held_out)))
    model = config.model
    configs = checkpoint_configs(config)
    check_layout(config, configs)
    check_tensor_parallel(config, configs["model.pretrain"])
    if config.algorithm.aux_loss_coef > 0:
        check_routers(configs["model.pretrain"], f"model.pretrain {model.pretrain}")
    paths = {name: getattr(model, name.removeprefix("model.")) for name in configs}
    processor = load_processor(model.pretrain, model.trust_remote_code)
    tokenizer = tokenizer_of(processor)
    taught, bad_demonstrations = _read_demonstrations(config, tokenizer)
    check_sight(configs, paths, [*train, *held_out, *(each.prompt for each in taught)])
    encoder = PromptEncoder(processor, config.data.system_prompt, config.data.prompt_max_len)
    check_tokens(configs, paths, processor, encoder, train[0])
    check_freezing(config)
    pixel_limits(processor, config.media)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    answer = tokenizer(train[0].reference or "?", add_special_tokens=False)["input_ids"]
    forbidden = forbidden_token_ids(configs["model.pretrain"])
    return RunInputs(
        train_prompts=tuple(train),
        eval_prompts=tuple(evaluation),
        eval_sets=sets,
        bad_rows=bad_rows + bad_demonstrations,
        sampling=Sampling(config.rollout.temperature, forbidden),
        pad_token_id=int(pad),
        stop_token_id=int(tokenizer.eos_token_id),
        canary_answer=tuple(answer[: config.rollout.generate_max_len]),
        demonstrations=tuple(taught),
    )


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
        path = TaskFiles(resolve_embedded(chosen.data, _cache_dir(config))).eval_file
    return tuple(_read(config, path, chosen.max_samples)[0])


def _data_files(config: RunConfig) -> tuple[Path, Path | None]:
    data, cache = config.data, _cache_dir(config)
    held_out = data.eval_data
    if not is_embedded(data.prompt_data):
        train = Path(data.prompt_data)
    else:
        dataset = TaskFiles(resolve_embedded(data.prompt_data, cache))
        train = dataset.train_file
        held_out = held_out or data.prompt_data
    if held_out is None:
        return train, None
    if is_embedded(held_out):
        return train, TaskFiles(resolve_embedded(held_out, cache)).eval_file
    return train, Path(held_out)


def _read(config: RunConfig, path: Path, limit: int | None) -> tuple[list[Prompt], int]:
    data = config.data
    keys = PromptKeys(data.input_key, data.image_key, data.reference_key, data.label_key)
    root = None if data.image_root is None else Path(data.image_root)
    prompts, bad = read_prompts(path, keys, root, data.max_bad_fraction)
    return prompts[:limit], len(bad)


def _read_demonstrations(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[Demonstration], int]:
    data = config.data
    if data.pretrain_data is None:
        return [], 0
    return read_demonstrations(
        Path(data.pretrain_data),
        PromptKeys(data.input_key, data.image_key, reference=data.output_key),
        None if data.image_root is None else Path(data.image_root),
        tokenizer,
        max_tokens=config.rollout.generate_max_len,
        max_bad_fraction=data.max_bad_fraction,
    )


def _cache_dir(config: RunConfig) -> Path | None:
    return None if config.data.cache_dir is None else Path(config.data.cache_dir)
