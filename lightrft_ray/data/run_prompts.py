"""The prompts of a run's settings: sources opened, read and put together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lightrft_ray.config.data import DataConfig
from lightrft_ray.data.layouts import PromptKeys
from lightrft_ray.data.prompt import Prompt
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.reading import ReadRules, ReadSource, read_source
from lightrft_ray.data.sources import open_source


def read_sources(
    data: DataConfig,
    names: Sequence[str],
    split: str,
    limit: int | None,
    *,
    take_all: bool = False,
) -> list[ReadSource]:
    """Each of the named sources, of each at most `limit` prompts.

    Raises UserError, with `take_all` not for bad rows, however many.
    """
    rules = read_rules(data, limit)
    return [read_source(open_source(name, split), rules, take_all=take_all) for name in names]


def read_rules(data: DataConfig, limit: int | None) -> ReadRules:
    """How the settings want rows to be read."""
    columns = {
        name: value if isinstance(value, list) else [value]
        for name, value in data.filter_columns.items()
    }
    return ReadRules(
        keys=PromptKeys(
            data.input_key, data.image_key, data.reference_key, data.label_key, data.video_key
        ),
        layout=data.layout,
        image_root=None if data.image_root is None else Path(data.image_root),
        allow_paths_outside=data.allow_paths_outside,
        filter_columns=columns,
        max_chars=data.max_prompt_chars,
        limit=limit,
        max_bad_fraction=data.max_bad_fraction,
        cache_dir=None if data.cache_dir is None else Path(data.cache_dir),
    )


def joined(reads: Sequence[ReadSource]) -> PromptSet:
    """The prompts of all sources, one behind the other, each a part of the set.

    Where two sources share an id, all ids are led by their source's name.
    """
    if len(reads) == 1:
        prompts = reads[0].prompts
        prompts.parts = [range(len(prompts))]
        return prompts
    ids = [name for read in reads for name in read.prompts.ids]
    has_clash = len(set(ids)) < len(ids)
    everything = PromptSet()
    for place, read in enumerate(reads, start=1):
        leading = f"{place}:{read.name}/" if has_clash else ""
        everything.extend(_renamed(read.prompts, leading))
    return everything


def _renamed(prompts: Iterable[Prompt], leading: str) -> Iterator[Prompt]:
    for prompt in prompts:
        yield replace(prompt, id=leading + prompt.id) if leading else prompt
