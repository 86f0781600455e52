"""Broken rows and files of every kind: none crashes the reader, each is named with its reason."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import WRITERS, png, write_jsonl, write_members

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.reading import ReadRules, ReadSource, read_source
from lightrft_ray.data.sources import open_source

GOOD = b'{"prompt": "good", "reference": "1"}\n'
IMAGE = {"type": "image"}


def _user(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


def _row(**columns: object) -> bytes:
    return json.dumps({"prompt": "q", "reference": "1"} | columns).encode()


LINES = {
    "no_json": (b"{'prompt': 1}", "not JSON (Expecting property name"),
    "cut_off": (b'{"prompt": "q", "refer', "not JSON (Unterminated string"),
    "no_object": (b"[1, 2]", "not a JSON object"),
    "deep": (b"[" * 200_000, "nested too deeply"),
    "huge_number": (
        b'{"prompt": "q", "label": 1' + b"0" * 5000 + b"}",
        "not JSON that can be read",
    ),
    "not_utf8": (b'{"prompt": "caf\xe9"}', "not UTF-8 at byte 15: save the file as UTF-8"),
    "zero_bytes": (b"\0\0\0\0", "not JSON"),
    "no_prompt": (b'{"question": "q", "reference": "1"}', "no 'prompt'"),
    "null_prompt": (_row(prompt=None), "no 'prompt'"),
    "empty_prompt": (_row(prompt=" \n"), "a text is empty"),
    "number_prompt": (_row(prompt=7), "the prompt is neither a text nor a list of chat messages"),
    "no_messages": (_row(prompt=[]), "the prompt is neither a text nor a list of chat messages"),
    "strange_message": (_row(prompt=[7]), "a message needs exactly the keys role and content"),
    "extra_key": (
        _row(prompt=[{"role": "user", "content": "q", "weight": 1}]),
        "a message needs exactly the keys role and content",
    ),
    "strange_role": (
        _row(prompt=[{"role": "tool", "content": "q"}]),
        "role 'tool' is not one of system, user, assistant",
    ),
    "list_role": (_row(prompt=[{"role": ["user"], "content": "q"}]), "role ['user'] is not one of"),
    "assistant_last": (
        _row(prompt=[*_user("q"), {"role": "assistant", "content": "a"}]),
        "the last message is the assistant's",
    ),
    "strange_part": (_row(prompt=_user([{"type": "audio"}])), "a content part's type is 'audio'"),
    "part_no_object": (_row(prompt=_user(["q"])), "a content part's type is None"),
    "part_with_path": (
        _row(prompt=_user([{"type": "image", "image": "a.png"}]), images=["a.png"]),
        "a content part of type image takes type",
    ),
    "empty_part": (_row(prompt=_user([{"type": "text", "text": ""}])), "a text is empty"),
    "surrogate": (_row(prompt="a \ud800"), "a text holds half of a surrogate pair"),
    "marker_alone": (_row(prompt="<image> what?"), "0 image(s) for 1 image part(s)"),
    "marker_too_few": (
        _row(prompt="<image> what?", images=["a.png", "b.png"]),
        "2 image(s) for 1 image part(s)",
    ),
    "part_missing": (_row(prompt=_user("q"), images=["a.png"]), "1 image(s) for 0 image part(s)"),
    "video_missing": (_row(prompt="<video> what?"), "0 video(s) for 1 video part(s)"),
    "video_for_image": (
        _row(prompt="<video> what?", images=["a.png"]),
        "1 image(s) for 0 image part(s)",
    ),
    "images_object": (_row(images={"a": 1}), "'images' is neither a path nor a list of paths"),
    "images_number": (_row(images=[1]), "'images' is neither a path nor a list of paths"),
    "empty_path": (_row(images=[""]), "'images' is neither a path nor a list of paths"),
    "address": (_row(images=["http://a.b/c.png"]), "an address, which is not fetched: download"),
    "bucket": (_row(images=["s3://bucket/c.png"]), "an address, which is not fetched"),
    "outside": (_row(images=["../c.png"]), "set data.image_root to a folder above, or data.allow"),
    "absolute": (_row(images=["/etc/passwd"]), "leaves the folder"),
    "file_url": (_row(images=["file:///etc/passwd"]), "leaves the folder"),
    "no_path": (_row(images=["a\0.png"]), "is no path"),
    "bad_base64": (_row(images=["data:image/png;base64,a*b"]), "base64 that is damaged"),
    "data_uri": (_row(images=["data:text/plain,abc"]), "a data: address that is not base64"),
    "no_bytes": (_row(images=["data:image/png;base64,"]), "an image or video of no bytes"),
    "videos_number": (_row(videos=3), "'videos' is neither a path nor a list of paths"),
    "list_label": (_row(label=["x"]), "'label' is neither a text nor a number"),
    "bool_reference": (_row(reference=True), "'reference' is neither a text nor a number"),
    "object_id": (_row(id={"a": 1}), "'id' is neither a text nor a number"),
    "no_reference": (b'{"prompt": "other"}', "no 'reference', which other rows have"),
    "repeated": (GOOD.strip(), "the same content as line 1"),
}


def _read(path: Path, **rules: object) -> ReadSource:
    return read_source(open_source(str(path)), ReadRules(max_bad_fraction=0.5, **rules))


@pytest.mark.parametrize("kind", LINES)
def test_a_broken_row_is_left_out_and_named(tmp_path: Path, kind: str) -> None:
    line, reason = LINES[kind]
    (tmp_path / "rows.jsonl").write_bytes(GOOD + line + b"\n")
    read = _read(tmp_path / "rows.jsonl", cache_dir=tmp_path)
    (bad,) = read.bad
    assert bad.line == 2 and reason in bad.reason, bad
    assert "\n" not in bad.reason and len(bad.reason) < 400
    assert len(read.prompts) == 1


def test_all_broken_rows_at_once(tmp_path: Path) -> None:
    lines = [line for line, _ in LINES.values()]
    (tmp_path / "rows.jsonl").write_bytes(GOOD + b"\n".join(lines) + b"\n")
    rules = ReadRules(max_bad_fraction=1, cache_dir=tmp_path)
    read = read_source(open_source(str(tmp_path / "rows.jsonl")), rules)
    assert [row.line for row in read.bad] == list(range(2, len(lines) + 2))
    for row, (_, reason) in zip(read.bad, LINES.values(), strict=True):
        assert reason in row.reason
    assert read.describe().count("\n") == 0


CONVERSATIONS = {
    "no_list": ("q", "the conversation is no list of turns"),
    "no_object": (["q"], "a turn of the conversation is no object"),
    "no_value": ([{"from": "human"}], "a turn needs from and value, or role and content"),
    "role": ([{"from": "tool", "value": "x"}], "role 'tool' is not one of"),
    "answer_alone": ([{"from": "gpt", "value": "x"}], "neither a text nor a list of chat messages"),
    "marker": (
        [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "x"}],
        "0 image(s) for 1 image part(s)",
    ),
}


@pytest.mark.parametrize("kind", CONVERSATIONS)
def test_a_broken_conversation_is_named(tmp_path: Path, kind: str) -> None:
    turns, reason = CONVERSATIONS[kind]
    good = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    write_jsonl(tmp_path / "a.jsonl", [{"conversations": good}, {"conversations": turns}])
    (bad,) = _read(tmp_path / "a.jsonl").bad
    assert reason in bad.reason


TABLES = {
    "too_few_cells": (b"prompt,reference\na,1\nb\n", "1 cells for 2 columns"),
    "too_many_cells": (b"prompt,reference\na,1\nb,2,3\n", "3 cells for 2 columns"),
    "open_quote": (b'prompt,reference\na,1\n"b,2\n', "not CSV (unexpected end of data)"),
    "broken_quote": (b'prompt,reference\na,1\n"b"c,2\n', "not CSV"),
    "not_utf8": (b"prompt,reference\na,1\ncaf\xe9,2\n", "not UTF-8: save the file as UTF-8"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_broken_line_of_a_table_is_named(tmp_path: Path, kind: str) -> None:
    content, reason = TABLES[kind]
    (tmp_path / "a.csv").write_bytes(content)
    read = _read(tmp_path / "a.csv")
    (bad,) = read.bad
    assert reason in bad.reason and read.where(bad).startswith("row 2: ")


def test_text_of_a_parquet_file_that_is_not_utf8(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"caf\xe9", b"fine"])
    text = pa.StringArray.from_buffers(3, *raw.buffers()[1:])
    pq.write_table(pa.table({"prompt": text}), tmp_path / "a.parquet")
    read = _read(tmp_path / "a.parquet")
    assert len(read.prompts) == 2
    assert [read.where(row) for row in read.bad] == [
        "row 2: 'prompt' is not UTF-8 at byte 3: write it as UTF-8"
    ]


def test_a_column_that_is_missing_in_row_10000(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"prompt": f"q{i}", "reference": "1"} for i in range(10_000)]
    del rows[9_999]["prompt"]
    write_jsonl(tmp_path / "a.jsonl", rows)
    read = _read(tmp_path / "a.jsonl")
    assert [read.where(row) for row in read.bad] == ["line 10000: no 'prompt'"]
    assert "1 bad rows left out (line 10000: no 'prompt')" in read.describe()


def test_rows_of_another_schema_are_named(tmp_path: Path) -> None:
    other = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    rows: list[dict[str, object]] = [{"prompt": f"q{i}", "reference": "1"} for i in range(30)]
    write_jsonl(tmp_path / "a.jsonl", [*rows, other])
    read = _read(tmp_path / "a.jsonl")
    assert (read.layout, len(read.prompts)) == ("lightrft", 30)
    assert [read.where(row) for row in read.bad] == ["line 31: no 'prompt'"]


def test_paths_outside_are_taken_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_jsonl(tmp_path / "a" / "rows.jsonl", [{"prompt": "q", "images": ["../b.png", "c.png"]}])
    read = _read(tmp_path / "a" / "rows.jsonl", allow_paths_outside=True)
    prompt = read.prompts[0]
    assert prompt.images == (str(tmp_path / "b.png"), str(tmp_path / "a" / "c.png"))
    assert prompt.image_root == Path("/")


def _cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


FILES = {
    "empty.jsonl": "the file is empty",
    "empty.json": "the file is empty",
    "empty.csv": "the file is empty",
    "names_alone.csv": "the file is empty",
    "empty.parquet": "no Parquet file, or damaged",
    "empty.arrow": "no Arrow file, or damaged",
    "empty.tar": "the tar is damaged after the beginning",
    "array.json": "the file is empty",
    "cut.jsonl.gz": "the compressed file ends early, after line",
    "broken.jsonl.gz": "the compressed file is damaged after line 0",
    "text.jsonl.gz": "the compressed file is damaged after line 0",
    "cut.json": "the JSON array breaks off at row",
    "garbage.json": "the JSON array breaks off at row 2",
    "more.json": "there is more behind the end of the array",
    "latin.json": "not UTF-8: save the file as UTF-8",
    "cut.parquet": "no Parquet file, or damaged",
    "cut.arrow": "no Arrow file, or damaged",
    "cut.tar": "the tar is damaged after 49.jpg (it has no mark",
    "cut.tar.gz": "the tar is damaged after",
    "names.csv": "the first line must name each column, once",
    "rows.txt": "the ending is none of .jsonl",
    "missing.jsonl": "there is no such file",
    "missing-*.jsonl": "there is no such file",
}


def make_broken(path: Path) -> None:
    contents = {
        "array.json": b"[ ]",
        "names_alone.csv": b"prompt,reference\n",
        "names.csv": b"prompt,prompt\na,b\n",
        "garbage.json": b'[{"prompt": "a"}, oops, {"prompt": "b"}]',
        "more.json": b'[{"prompt": "a"}][{"prompt": "b"}]',
        "latin.json": b'[{"prompt": "caf\xe9"}]',
        "text.jsonl.gz": GOOD,
        "broken.jsonl.gz": gzip.compress(GOOD)[:10] + b"\xff" * 40,
        "rows.txt": GOOD,
    }
    rows: list[dict[str, object]] = [{"prompt": f"{i} " * 50, "reference": i} for i in range(2000)]
    if path.name.startswith("missing"):
        return
    if path.name in contents or path.name.startswith("empty"):
        path.write_bytes(contents.get(path.name, b""))
    elif path.name.startswith("cut.tar"):
        write_members(path, [(f"{i}.{end}", png(i)) for i in range(99) for end in ("png", "jpg")])
        _cut(path, 0.5)
    else:
        writers = {name.partition(".")[2]: write for name, write in WRITERS.items()}
        writers |= {"json": WRITERS["rows.json"]}
        writers[path.name.partition(".")[2]](path, rows)
        _cut(path, 0.6)


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    make_broken(tmp_path / name)
    with pytest.raises(UserError) as caught:
        _read(tmp_path / name)
    message = str(caught.value)
    assert message.startswith(str(tmp_path)) and FILES[name] in message
    assert "\n" not in message


def test_a_tar_whose_json_is_broken_loses_that_row_alone(tmp_path: Path) -> None:
    good = json.dumps({"prompt": "q"}).encode()
    members = [("1.json", good), ("2.json", b"{"), ("3.json", good), ("4.txt", b"\xff")]
    write_members(tmp_path / "a.tar", members)
    read = _read(tmp_path / "a.tar")
    assert [read.where(row)[:12] for row in read.bad] == ["row 2: 2: no", "row 4: 4: it"]
