"""The stream of a run over files: the same order after a stop at any row, mixtures included."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from data_files import write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrft_ray.config import RunConfig
from lightrft_ray.config.data import DataConfig
from lightrft_ray.config.errors import UserError
from lightrft_ray.config.load import load_config
from lightrft_ray.data.difficulty import PassRates
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.prompt_source import PromptSource, mixture
from lightrft_ray.data.run_prompts import joined, read_sources

Taken = list[tuple[str, int]]


def _set(folder: Path, *sizes: int, **columns: object) -> PromptSet:
    """One source of each size."""
    names = []
    for source, size in enumerate(sizes):
        path = folder / f"{source}.jsonl"
        write_jsonl(path, [{"prompt": f"{source}-{i}"} | columns for i in range(size)])
        names.append(str(path))
    return joined(read_sources(DataConfig(), names, "train", None))


def _take(source: PromptSource, count: int) -> Taken:
    taken = source.take(count)
    return [(str(prompt.messages[0]["content"]), epoch) for prompt, epoch in taken]


@given(data=st.data())
@settings(max_examples=60)
def test_a_stream_goes_on_as_if_it_had_not_stopped(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    is_mixed = data.draw(st.booleans())
    weights = [data.draw(st.sampled_from([0.1, 1.0, 3.0])) for _ in sizes] if is_mixed else None
    seed, before = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 40))
    by_difficulty = data.draw(st.booleans())
    with TemporaryDirectory() as folder:
        prompts = _set(Path(folder), *sizes)

    def source() -> PromptSource:
        rates = PassRates(seed, floor=0.3, memory=0.5) if by_difficulty else None
        made = PromptSource(prompts, seed, rates, mixture(prompts, weights))
        for name in prompts.ids[::2]:
            made.note(name, 0.9)
        return made

    whole = _take(source(), before + 20)
    first = source()
    start: Taken = []
    for _ in range(before):
        coming = first.peek(data.draw(st.integers(0, 12)))
        start += _take(first, 1)
        assert [str(each.messages[0]["content"]) for each in coming[:1]] in ([], [start[-1][0]])
    resumed = source()
    resumed.take(7)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert start + _take(resumed, 20) == whole


@pytest.mark.parametrize("weights", [[1.0, 3.0], [0.2, 0.6], [5.0, 5.0]])
def test_sources_are_taken_by_their_weights_each_in_epochs_of_its_own(
    tmp_path: Path, weights: list[float]
) -> None:
    prompts = _set(tmp_path, 4, 50)
    source = PromptSource(prompts, 1, shares=mixture(prompts, weights))
    taken = _take(source, 40)
    for count in range(1, 41):
        of_first = sum(name.startswith("0-") for name, _ in taken[:count])
        assert abs(of_first - count * weights[0] / sum(weights)) <= 1
    first = [(name, epoch) for name, epoch in taken if name.startswith("0-")]
    for epoch in range(len(first) // 4):
        part = first[4 * epoch : 4 * epoch + 4]
        assert {name for name, _ in part} == {f"0-{i}" for i in range(4)}
        assert {number for _, number in part} == {epoch}


def test_without_weights_all_sources_are_one_set(tmp_path: Path) -> None:
    prompts = _set(tmp_path, 2, 5)
    assert prompts.parts == [range(2), range(2, 7)]
    taken = _take(PromptSource(prompts, 1), 7)
    assert {name for name, _ in taken} == {*["0-0", "0-1", "1-0", "1-1", "1-2", "1-3", "1-4"]}


def test_ids_that_two_sources_share_are_led_by_the_source(tmp_path: Path) -> None:
    for name in "ab":
        write_jsonl(tmp_path / f"{name}.jsonl", [{"prompt": name, "id": 7}])
    names = [f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"]
    prompts = joined(read_sources(DataConfig(), names, "train", None))
    assert prompts.ids == [f"1:{tmp_path}/a.jsonl/7", f"2:{tmp_path}/b.jsonl/7"]
    assert [prompt.id for prompt in prompts] == prompts.ids


def test_a_mixture_of_other_sources_is_refused(tmp_path: Path) -> None:
    prompts = _set(tmp_path, 2, 5)
    state = PromptSource(prompts, 1, shares=mixture(prompts, [1, 2])).state_dict()
    with pytest.raises(UserError, match=r"mixed 2 source\(s\), and this run 1"):
        PromptSource(prompts, 1).load_state_dict(state)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"prompt_data": "a,b", "prompt_data_probs": "0.5"}, "1 weight(s) for 2 source(s)"),
        ({"prompt_data": "a", "prompt_data_probs": "1,1"}, "2 weight(s) for 1 source(s)"),
        ({"prompt_data": "a,b", "prompt_data_probs": "1,x"}, "numbers above 0 with commas"),
        ({"prompt_data": "a,b", "prompt_data_probs": "1,0"}, "numbers above 0 with commas"),
        ({"prompt_data": "a,b", "prompt_data_probs": "1,nan"}, "numbers above 0 with commas"),
        ({"prompt_data": "a,"}, "data.prompt_data has a comma without a source"),
        ({"layout": "ours"}, "data.layout on the command line: must be 'auto', 'lightrft'"),
        ({"filter_columns": "{a: {b: 1}}"}, "data.filter_columns on the command line"),
        ({"max_prompt_chars": "0"}, "data.max_prompt_chars"),
    ],
)
def test_settings_that_contradict_are_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config(None, list(settings.items()))
    assert named in str(caught.value)


def test_filters_are_settings() -> None:
    given = [("filter_columns", "{label: [a, b], level: 3, easy: true}"), ("layout", "verl")]
    config: RunConfig = load_config(None, given)
    assert config.data.filter_columns == {"label": ["a", "b"], "level": 3, "easy": True}


def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    """2,000 prompts of 20 kB: 40 MB of text, of which ids and places alone are held."""
    with (tmp_path / "big.jsonl").open("w") as file:
        file.writelines(json.dumps({"prompt": f"{i} " + "x" * 20_000}) + "\n" for i in range(2000))
    process = psutil.Process()
    before = process.memory_info().rss
    source = PromptSource(
        joined(read_sources(DataConfig(), [str(tmp_path / "big.jsonl")], "train", None)), 1
    )
    for _ in range(20):
        source.take(100)
    assert process.memory_info().rss - before < 15e6
