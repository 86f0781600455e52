"""The layouts of data sets for other trainers are seen by their columns, and read alike."""

from pathlib import Path

import pytest
from data_files import png, write_jsonl, write_parquet

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.layouts import LAYOUTS, PromptKeys
from lightrft_ray.data.reading import ReadRules, ReadSource, read_source
from lightrft_ray.data.sources import open_source

IMAGE = {"type": "image"}
QUESTION = {"role": "user", "content": [IMAGE, {"type": "text", "text": "\nHow many?"}]}
TURNS = [{"from": "human", "value": "<image>\nHow many?"}, {"from": "gpt", "value": "3"}]
CHAT = [{"role": "user", "content": "<image>\nHow many?"}]

ROWS: dict[str, dict[str, object]] = {
    "lightrft": {"prompt": CHAT, "images": ["a.png"], "reference": "3", "label": "count"},
    "openrlhf": {"input": CHAT, "images": "a.png", "label": 3, "datasource": "count"},
    "verl": {
        "data_source": "count",
        "prompt": CHAT,
        "images": [{"image": "a.png"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {"index": 0, "split": "train"},
    },
    "trl": {"prompt": CHAT, "image": "a.png", "solution": "3", "task": "count"},
    "llava": {"id": "17", "image": "a.png", "conversations": TURNS},
    "sharegpt": {"conversations": TURNS, "images": ["a.png"]},
}


def _read(path: Path, *rows: dict[str, object], **rules: object) -> ReadSource:
    write_jsonl(path, rows)
    return read_source(open_source(str(path)), ReadRules(**rules))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("choice", ["auto", "named"])
def test_a_layout_is_seen_and_read(tmp_path: Path, name: str, choice: str) -> None:
    layout = "auto" if choice == "auto" else name
    read = _read(tmp_path / "a.jsonl", ROWS[name], layout=layout)
    assert (read.layout, read.bad) == (name, [])
    (prompt,) = read.prompts
    assert prompt.messages == (QUESTION,)
    assert (prompt.images, prompt.reference) == (("a.png",), "3")
    assert prompt.label == ("" if name in ("llava", "sharegpt") else "count")
    assert f"layout {name}" in read.describe()


def test_verl_as_its_own_parquet_files_have_it(tmp_path: Path) -> None:
    row = ROWS["verl"] | {"images": [{"bytes": png(3), "path": None}]}
    write_parquet(tmp_path / "a.parquet", [row])
    rules = ReadRules(cache_dir=tmp_path)
    read = read_source(open_source(str(tmp_path / "a.parquet")), rules)
    assert (read.layout, read.prompts[0].messages) == ("verl", (QUESTION,))
    assert read.prompts[0].reference == "3"


def test_typed_parts_of_parquet_files_have_nulls(tmp_path: Path) -> None:
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "q"}]
    row = {"prompt": [{"role": "user", "content": parts, "name": None}], "images": ["a.png"]}
    write_parquet(tmp_path / "a.parquet", [row])
    read = read_source(open_source(str(tmp_path / "a.parquet")), ReadRules())
    (message,) = read.prompts[0].messages
    assert message == {"role": "user", "content": [IMAGE, {"type": "text", "text": "q"}]}


def test_a_conversation_of_several_turns_with_a_system_prompt(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]
    read = _read(tmp_path / "a.jsonl", {"messages": turns, "system": "be short"})
    assert (read.layout, read.prompts[0].reference) == ("sharegpt", "four")
    assert [message["role"] for message in read.prompts[0].messages] == [
        "system",
        "user",
        "assistant",
        "user",
    ]


def test_a_completion_of_messages_is_its_text(tmp_path: Path) -> None:
    row = {"prompt": "q", "completion": [{"role": "assistant", "content": "a"}]}
    read = _read(tmp_path / "a.jsonl", row)
    assert (read.layout, read.prompts[0].reference) == ("trl", "a")


def test_media_stand_where_their_markers_are_in_order(tmp_path: Path) -> None:
    row = {
        "prompt": "first <image> then <video>and <image>",
        "images": ["a.png", "b.png"],
        "videos": ["c.mp4"],
    }
    prompt = _read(tmp_path / "a.jsonl", row).prompts[0]
    assert prompt.messages[0]["content"] == [
        {"type": "text", "text": "first "},
        IMAGE,
        {"type": "text", "text": " then "},
        {"type": "video"},
        {"type": "text", "text": "and "},
        IMAGE,
    ]
    assert (prompt.images, prompt.videos) == (("a.png", "b.png"), ("c.mp4",))


def test_media_without_markers_come_before_a_plain_text(tmp_path: Path) -> None:
    row = {"prompt": "which?", "images": ["a.png"], "videos": ["c.mp4"]}
    prompt = _read(tmp_path / "a.jsonl", row).prompts[0]
    assert prompt.messages[0]["content"] == [
        IMAGE,
        {"type": "video"},
        {"type": "text", "text": "which?"},
    ]


def test_renamed_columns_take_the_place_of_a_layouts_own(tmp_path: Path) -> None:
    row = {"meta": {"question": "q"}, "reward_model": {"ground_truth": "3"}, "data_source": "x"}
    keys = PromptKeys(prompt="meta.question")
    read = _read(tmp_path / "a.jsonl", row, keys=keys, layout="verl")
    assert read.prompts[0].messages[0]["content"] == "q"
    assert read.prompts[0].reference == "3"
    assert _read(tmp_path / "b.jsonl", row, keys=keys).layout == "lightrft"


def test_columns_of_no_layout_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no row has a column 'prompt'; the columns are a, b; "):
        _read(tmp_path / "a.jsonl", {"a": 1, "b": 2})
