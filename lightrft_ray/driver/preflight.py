"""All that can be known to be wrong before a model is loaded or a process started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from lightrft_ray.config import RunConfig
from lightrft_ray.config.data import source_names
from lightrft_ray.config.evaluation import EvaluationSet
from lightrft_ray.data.demonstrations import Demonstration, read_demonstrations
from lightrft_ray.data.embedded import is_embedded, resolve_embedded
from lightrft_ray.data.processing import (
    PromptEncoder,
    load_processor,
    pixel_limits,
    tokenizer_of,
)
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.prompts import Prompt, PromptKeys
from lightrft_ray.data.reading import ReadSource
from lightrft_ray.data.run_prompts import joined, read_rules, read_sources
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.driver.model_checks import (
    check_adapters,
    check_layout,
    check_sight,
    check_tensor_parallel,
    check_tokens,
    check_trained_part,
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

    train_prompts: PromptSet
    eval_prompts: tuple[Prompt, ...]
    eval_sets: Mapping[str, tuple[Prompt, ...]]
    bad_rows: int
    sampling: Sampling
    pad_token_id: int
    stop_token_id: int
    canary_answer: tuple[int, ...]
    demonstrations: tuple[Demonstration, ...] = ()
    notes: tuple[str, ...] = ()  # one on each source of prompts

    @property
    def max_images(self) -> int:
        """The largest number of images of a prompt."""
        held = [len(prompt.images) for prompt in self._held_prompts()]
        return max([self.train_prompts.max_images, *held])

    @property
    def max_videos(self) -> int:
        """The largest number of videos of a prompt."""
        held = [len(prompt.videos) for prompt in self._held_prompts()]
        return max([self.train_prompts.max_videos, *held])

    def _held_prompts(self) -> tuple[Prompt, ...]:
        """Those in memory: all but the ones to train on."""
        taught = [each.prompt for each in self.demonstrations]
        more = [prompt for prompts in self.eval_sets.values() for prompt in prompts]
        return (*self.eval_prompts, *taught, *more)


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
    reads, held_out_reads = read_data(config)
    train = joined(reads)
    evaluation = joined(held_out_reads)[:]
    sets = {name: _read_set(config, each) for name, each in config.evaluation.eval_sets.items()}
    held_out = [*evaluation, *(prompt for prompts in sets.values() for prompt in prompts)]
    check_labels(config.reward, (*sorted(train.labels), *(prompt.label for prompt in held_out)))
    model = config.model
    configs = checkpoint_configs(config)
    check_layout(config, configs)
    check_tensor_parallel(config, configs["model.pretrain"])
    check_adapters(config, configs["model.pretrain"])
    if config.algorithm.aux_loss_coef > 0:
        check_routers(configs["model.pretrain"], f"model.pretrain {model.pretrain}")
    paths = {name: getattr(model, name.removeprefix("model.")) for name in configs}
    processor = load_processor(model.pretrain, model.trust_remote_code)
    tokenizer = tokenizer_of(processor)
    taught, bad_demonstrations = _read_demonstrations(config, tokenizer)
    check_sight(configs, paths, [*train.examples, *held_out, *(each.prompt for each in taught)])
    encoder = PromptEncoder(processor, config.data.system_prompt, config.data.prompt_max_len)
    check_tokens(configs, paths, processor, encoder, train[0])
    check_trained_part(config)
    pixel_limits(processor, config.media)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    answer = tokenizer(train[0].reference or "?", add_special_tokens=False)["input_ids"]
    forbidden = forbidden_token_ids(configs["model.pretrain"])
    return RunInputs(
        train_prompts=train,
        eval_prompts=tuple(evaluation),
        eval_sets=sets,
        bad_rows=bad_demonstrations + sum(len(read.bad) for read in (*reads, *held_out_reads)),
        sampling=Sampling(config.rollout.temperature, forbidden),
        pad_token_id=int(pad),
        stop_token_id=int(tokenizer.eos_token_id),
        canary_answer=tuple(answer[: config.rollout.generate_max_len]),
        demonstrations=tuple(taught),
        notes=tuple(f"data: {read.describe()}" for read in (*reads, *held_out_reads)),
    )


def read_data(
    config: RunConfig, *, take_all: bool = False
) -> tuple[list[ReadSource], list[ReadSource]]:
    """The sources of the training prompts, and of the held-out ones of data.eval_data.

    Raises UserError, with `take_all` not for bad rows, however many.
    """
    data = config.data
    names = data.prompt_sources
    # Embedded data bring their held-out split.
    held_out = [name for name in names if is_embedded(name)]
    if data.eval_data is not None:
        held_out = source_names(data.eval_data)
    train, evaluation = (_files(config, names), _files(config, held_out, held_out=True))
    limit, eval_limit = data.max_samples, data.eval_max_samples
    return (
        read_sources(data, train, data.prompt_split, limit, take_all=take_all),
        read_sources(data, evaluation, data.eval_split, eval_limit, take_all=take_all),
    )


def _read_set(config: RunConfig, chosen: EvaluationSet) -> tuple[Prompt, ...]:
    names = _files(config, source_names(chosen.data), held_out=True)
    reads = read_sources(config.data, names, config.data.eval_split, chosen.max_samples)
    return tuple(joined(reads))


def _files(config: RunConfig, names: Sequence[str], *, held_out: bool = False) -> list[str]:
    """The names of sources, with a file in the place of each embedded one."""
    files = []
    for name in names:
        if is_embedded(name):
            dataset = TaskFiles(resolve_embedded(name, _cache_dir(config)))
            files.append(str(dataset.eval_file if held_out else dataset.train_file))
        else:
            files.append(name)
    return files


def _read_demonstrations(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[Demonstration], int]:
    data = config.data
    if data.pretrain_data is None:
        return [], 0
    rules = read_rules(data, limit=None)
    keys = replace(rules.keys, reference=data.output_key, label=PromptKeys.label)
    # Filters and the cap are those of the prompts to train on.
    rules = replace(rules, keys=keys, filter_columns={}, max_chars=None)
    return read_demonstrations(
        data.pretrain_data, rules, tokenizer, max_tokens=config.rollout.generate_max_len
    )


def _cache_dir(config: RunConfig) -> Path | None:
    return None if config.data.cache_dir is None else Path(config.data.cache_dir)
