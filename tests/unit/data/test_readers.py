"""Each format gives the same prompts; media in rows and archives are found again."""

import base64
import json
import sys
from pathlib import Path

import pytest
from data_files import WRITERS, png, write_jsonl, write_members, write_parquet

from lightrft_ray.config.data import source_names
from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.data.layouts import PromptKeys
from lightrft_ray.data.media import load_image, load_images
from lightrft_ray.data.prompt import Prompt
from lightrft_ray.data.readers import json_array
from lightrft_ray.data.reading import ReadRules, ReadSource, read_source
from lightrft_ray.data.sources import open_source
from lightrft_ray.data.stored_media import read_stored

ROWS = [
    {
        "id": f"row-{place}",
        "prompt": [{"role": "user", "content": f"<image>\nhow many, \u2028 ü {place}?"}],
        "images": [f"{place}.png"],
        "reference": str(place),
        "label": "count",
    }
    for place in range(7)
]


def _read(path: Path | str, split: str = "train", **rules: object) -> ReadSource:
    return read_source(open_source(str(path), split), ReadRules(**rules))


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_prompts(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    read = _read(tmp_path / name)
    assert read.bad == []
    parts = [{"type": "image"}, {"type": "text", "text": "\nhow many, \u2028 ü 3?"}]
    message = {"role": "user", "content": parts}
    assert read.prompts[3] == Prompt("row-3", (message,), ("3.png",), tmp_path, "3", "count")
    assert read.prompts.ids == [row["id"] for row in ROWS]
    assert list(read.numbers) == list(range(1, 8))
    assert read.layout == "lightrft"


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "base64.jsonl", "uri.jsonl"])
def test_bytes_in_rows_are_kept_once_and_found_again(tmp_path: Path, name: str) -> None:
    files = [png(1, (200, 300)), png(2, (200, 300)), png(1, (200, 300))]
    if name.endswith(".jsonl"):
        leading = "data:image/png;base64," if name == "uri.jsonl" else ""
        media: list[object] = [leading + base64.b64encode(file).decode() for file in files]
    else:
        media = [{"bytes": file, "path": None} for file in files]
    rows = [{"prompt": f"q{i}", "images": [one]} for i, one in enumerate(media)]
    WRITERS.get(name, write_jsonl)(tmp_path / name, rows)
    read = _read(tmp_path / name, cache_dir=tmp_path / "cache")
    assert read.bad == []
    assert [load_images(prompt)[0].getpixel((0, 0))[0] for prompt in read.prompts] == [1, 2, 1]
    (stored,) = (tmp_path / "cache").iterdir()
    assert stored.stat().st_size == len(files[0]) + len(files[1])
    again = _read(tmp_path / name, cache_dir=tmp_path / "cache")
    assert again.prompts[:] == read.prompts[:]
    assert list((tmp_path / "cache").iterdir()) == [stored]


def test_ids_of_rows_with_bytes_do_not_depend_on_where_they_lie(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "images": [{"bytes": png(i), "path": "a.png"}]} for i in (1, 2)]
    write_parquet(tmp_path / "a.parquet", rows)
    write_parquet(tmp_path / "b.parquet", rows[::-1])
    first, second = (
        _read(tmp_path / f"{name}.parquet", cache_dir=tmp_path / name).prompts.ids for name in "ab"
    )
    assert first == second[::-1] and len(set(first)) == 2


@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_members_of_a_tar_are_images(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"shard.{ending}"
    question = {"prompt": "which <image> or <image>?", "images": ["b.two.png", "b.one.png"]}
    members = [
        ("x/a.json", json.dumps({"prompt": "what?"}).encode()),
        ("x/a.jpg", png(5)),
        ("b.json", json.dumps(question).encode()),
        ("b.one.png", png(1)),
        ("b.two.png", png(2)),
        ("c.txt", b"no json"),
    ]
    write_members(path, members)
    read = _read(path, keys=PromptKeys(), cache_dir=tmp_path / "cache", max_bad_fraction=0.5)
    assert read.prompts.ids == ["x/a", "b"]
    greys = [
        [image.getpixel((0, 0))[0] for image in load_images(prompt)] for prompt in read.prompts
    ]
    assert greys == [[5], [2, 1]]
    assert [read.where(row) for row in read.bad] == ["row 3: no 'prompt'"]
    assert (tmp_path / "cache").exists() == (ending == "tar.gz")  # a plain tar is not copied


def test_text_members_of_a_tar_are_columns(tmp_path: Path) -> None:
    write_members(tmp_path / "a.tar", [("1.txt", "wörd".encode()), ("1.cls", b"3")])
    read = _read(tmp_path / "a.tar", keys=PromptKeys(prompt="txt", reference="cls"))
    assert read.prompts[0].messages[0]["content"] == "wörd"
    assert read.prompts[0].reference == "3"


def test_rows_cannot_spell_a_reference_to_part_of_a_file(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        [{"prompt": "q", "images": "stored://0+9@/etc/passwd"}, {"prompt": "r"}],
    )
    read = _read(tmp_path / "a.jsonl", max_bad_fraction=0.5)
    assert "is an address, which is not fetched" in read.bad[0].reason


def test_stored_media_that_are_gone_are_faults_of_the_sample(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    assert read_stored(f"stored://1+2@{tmp_path / 'a'}") == b"23"
    for reference in (f"stored://1+9@{tmp_path / 'a'}", f"stored://0+1@{tmp_path / 'b'}"):
        with pytest.raises(DataFault, match="image in"):
            load_image(reference, tmp_path)


def test_several_files_are_one_source_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "b-2.jsonl", [{"prompt": "3"}, {"prompt": 4}])
    write_jsonl(tmp_path / "b-1.jsonl", [{"prompt": "1"}, {"prompt": "2"}])
    read = _read(tmp_path / "b-*.jsonl", max_bad_fraction=0.5)
    assert [prompt.messages[0]["content"] for prompt in read.prompts] == ["1", "2", "3"]
    assert read.where(read.bad[0]).startswith("line 2 of b-2.jsonl: the prompt is neither")


def test_a_large_array_is_read_a_piece_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "_CHUNK", 5)
    WRITERS["rows.json"](tmp_path / "rows.json", ROWS)
    assert _read(tmp_path / "rows.json").prompts.ids == [row["id"] for row in ROWS]


@pytest.mark.parametrize(
    ("split", "ids"),
    [
        ("train[:2]", [0, 1]),
        ("train[5:]", [5, 6]),
        ("test[2:4]", [2, 3]),
        ("train[:50%]", [0, 1, 2]),
        ("train[50%:]", [3, 4, 5, 6]),
    ],
)
def test_a_slice_of_a_file(tmp_path: Path, split: str, ids: list[int]) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    assert _read(tmp_path / "a.jsonl", split).prompts.ids == [f"row-{place}" for place in ids]


@pytest.mark.parametrize("split", ["train[", "a b", "train[1:2:3]", ""])
def test_what_is_no_split_is_refused(tmp_path: Path, split: str) -> None:
    with pytest.raises(UserError, match="neither a name nor one with a slice"):
        open_source("a.jsonl", split)


def test_filters_and_the_cap(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{'x' * i}", "reference": "1", "meta": {"kind": "a" if i % 2 else "b"}, "n": i}
        for i in range(1, 9)
    ]
    write_jsonl(tmp_path / "a.jsonl", rows)
    read = _read(tmp_path / "a.jsonl", filter_columns={"meta.kind": ["a"]}, max_chars=5)
    assert [len(prompt.messages[0]["content"]) for prompt in read.prompts] == [1, 3, 5]
    assert read.filtered == 5
    assert len(_read(tmp_path / "a.jsonl", filter_columns={"n": [2, 3, True]}).prompts) == 2
    assert len(_read(tmp_path / "a.jsonl", limit=3).prompts) == 3
    with pytest.raises(UserError, match=r"none of its 8 rows passes data\.filter_columns"):
        _read(tmp_path / "a.jsonl", filter_columns={"n": [99]})
    with pytest.raises(UserError, match=r"no row has the column 'm' of data\.filter"):
        _read(tmp_path / "a.jsonl", filter_columns={"m": [1]})


def test_a_folder_and_its_splits_are_read_by_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    import datasets

    folder = tmp_path / "set"
    (folder / "data").mkdir(parents=True)
    for split in ("train", "test"):
        rows = [{"prompt": split, "images": [{"bytes": png(9), "path": "a.png"}]}]
        write_parquet(folder / "data" / f"{split}-00000-of-00001.parquet", rows)
    read = _read(folder, "test", cache_dir=tmp_path / "media")
    (prompt,) = read.prompts
    assert prompt.messages[0]["content"][1] == {"type": "text", "text": "test"}
    assert load_images(prompt)[0].size == (4, 3)
    with pytest.raises(UserError, match="no split 'validation', but train, test"):
        _read(folder, "validation")
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    assert _read(tmp_path / "saved").prompts.ids == [row["id"] for row in ROWS]


def test_code_of_a_data_set_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "coded").mkdir()
    (tmp_path / "coded" / "coded.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match=r"coded: cannot be loaded as a Hugging Face data set"):
        open_source(str(tmp_path / "coded"))
    assert not (tmp_path / "ran").exists()


def test_datasets_that_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"install the extra lightrft-ray\[datasets\]"):
        open_source(str(tmp_path))


def test_a_name_that_is_neither_a_file_nor_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def refuse(*_: object) -> None:
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'a/b' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(UserError, match=r"a/b: cannot be loaded .*doesn't exist on the Hub"):
        open_source("a/b")


def test_several_sources_of_one_setting(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "c,d.jsonl", ROWS)
    assert source_names("a.jsonl, b.jsonl") == ["a.jsonl", "b.jsonl"]
    assert source_names(str(tmp_path / "c,d.jsonl")) == [str(tmp_path / "c,d.jsonl")]
