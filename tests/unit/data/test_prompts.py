"""Reading prompts: what a row becomes, and how its faults are reported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.prompts import BadRow, Prompt, PromptKeys, read_prompts
from lightrft_ray.data.task_files import TaskFiles

IMAGE = {"type": "image"}


def _text(text: str) -> dict:
    return {"type": "text", "text": text}


def _write(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _reason(folder: Path, row: dict) -> str:
    """Why `row` is bad beside one good row."""
    path = _write(folder, {"prompt": "good"}, row)
    (good,), (bad,) = read_prompts(path, max_bad_fraction=0.5)
    assert (good.messages[0]["content"], bad.line) == ("good", 2)
    return bad.reason


def test_a_chat_row_is_kept_as_it_is(digits: TaskFiles) -> None:
    prompts, bad = read_prompts(digits.train_file)
    assert (len(prompts), bad) == (1400, [])
    assert prompts[0] == Prompt(
        id="digits-train-01081",
        messages=({"role": "user", "content": [IMAGE, _text("Which digit?")]},),
        images=("images/01081.png",),
        image_root=digits.folder,
        reference="2",
        label="digits",
    )


def test_a_plain_prompt_gets_its_images_before_the_text(tmp_path: Path) -> None:
    path = _write(tmp_path, {"prompt": "same?", "images": ["a.png", "b.png"]}, {"prompt": "hi"})
    (pair, text), _ = read_prompts(path)
    assert pair.messages == ({"role": "user", "content": [IMAGE, IMAGE, _text("same?")]},)
    assert text.messages == ({"role": "user", "content": "hi"},)
    assert (text.images, text.reference, text.label) == ((), "", "")


def test_columns_can_be_renamed_and_the_root_moved(tmp_path: Path) -> None:
    row = {"question": "how many?", "picture": "a.png", "answer": 3, "task": "count", "id": 17}
    keys = PromptKeys("question", "picture", "answer", "task")
    (prompt,), _ = read_prompts(_write(tmp_path, row), keys, image_root=Path("/pictures"))
    assert prompt == Prompt(
        id="17",
        messages=({"role": "user", "content": [IMAGE, _text("how many?")]},),
        images=("a.png",),
        image_root=Path("/pictures"),
        reference="3",
        label="count",
    )


def test_a_missing_id_is_a_hash_of_the_content_alone(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "reference": "1"}, {"prompt": "b", "reference": "1"}]
    first, second = read_prompts(_write(tmp_path, *rows))[0]
    reordered = read_prompts(_write(tmp_path, *reversed(rows)))[0]
    assert first.id == "prompt-e41f20757a289f2f"
    assert {first.id, second.id} == {prompt.id for prompt in reordered}
    assert first.id != second.id


def test_line_separators_inside_a_text_do_not_end_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "one\u2028two\x85three"}\r\n\n{"prompt": "b"}', encoding="utf-8")
    prompts, bad = read_prompts(path)
    assert [prompt.messages[0]["content"] for prompt in prompts] == ["one\u2028two\x85three", "b"]
    assert bad == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": None}, "no 'prompt'"),
        ({"prompt": " "}, "a text is empty or not a string"),
        ({"prompt": 3}, "the prompt is neither a text nor a list of chat messages"),
        ({"prompt": []}, "the prompt is neither a text nor a list of chat messages"),
        ({"prompt": "a \ud800"}, "a text holds half of a surrogate pair"),
        ({"prompt": ["hi"]}, "a message needs exactly the keys role and content"),
        (
            {"prompt": [{"role": "robot", "content": "hi"}]},
            "role 'robot' is not one of system, user, assistant",
        ),
        (
            {"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
            "the last message is the assistant's, not the user's",
        ),
        (
            {"prompt": [{"role": "user", "content": [IMAGE]}]},
            "0 image(s) for 1 image part(s) in the prompt",
        ),
        (
            {"prompt": [{"role": "user", "content": "q"}], "images": ["a.png"]},
            "1 image(s) for 0 image part(s) in the prompt",
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "audio"}]}]},
            "a content part's type is 'audio', not text, image or video",
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "video"}]}]},
            "0 video(s) for 1 video part(s) in the prompt",
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]},
            "a content part of type image takes type, not ['image', 'type']",
        ),
        ({"prompt": "q", "images": [""]}, "'images' is neither a path nor a list of paths"),
        ({"prompt": "q", "images": {"a": 1}}, "'images' is neither a path nor a list of paths"),
        ({"prompt": "q", "label": ["x"]}, "'label' is neither a text nor a number"),
        ({"prompt": "q", "label": True}, "'label' is neither a text nor a number"),
        ({"prompt": "good"}, "the same content as line 1"),
    ],
)
def test_a_bad_row_is_counted_with_its_reason(tmp_path: Path, row: dict, reason: str) -> None:
    assert _reason(tmp_path, row) == reason


def test_lines_that_are_no_objects_are_bad_rows_in_line_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": 1}\n{"prompt": "a"}\n{"prompt": \n[1]\n{"prompt": "b"}\n')
    prompts, bad = read_prompts(path, max_bad_fraction=0.6)
    assert len(prompts) == 2
    assert bad == [
        BadRow(1, "the prompt is neither a text nor a list of chat messages"),
        BadRow(3, "not JSON (Expecting value at column 12)"),
        BadRow(4, "not a JSON object"),
    ]


def test_a_reference_is_needed_where_others_have_one(tmp_path: Path) -> None:
    path = _write(tmp_path, {"prompt": "a", "reference": "1"}, {"prompt": "b"})
    _, bad = read_prompts(path, max_bad_fraction=0.5)
    assert bad == [BadRow(2, "no 'reference', which other rows have")]


def test_too_many_bad_rows_stop_the_run_and_name_the_first_three(tmp_path: Path) -> None:
    path = _write(tmp_path, *({"prompt": i if i % 2 else f"q{i}"} for i in range(10)))
    with pytest.raises(UserError) as caught:
        read_prompts(path, max_bad_fraction=0.4)
    reason = "the prompt is neither a text nor a list of chat messages"
    assert str(caught.value) == (
        f"{path}: 5 of 10 rows are bad, more than the share 0.4 that data.max_bad_fraction allows"
        f" (line 2: {reason}; line 4: {reason}; line 6: {reason})"
    )
    assert len(read_prompts(path, max_bad_fraction=0.5)[1]) == 5


def test_a_file_without_a_usable_row_is_an_error_whatever_the_share(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 of 1 rows are bad"):
        read_prompts(_write(tmp_path, {"prompt": 1}), max_bad_fraction=1.0)


def test_one_id_on_two_lines_is_an_error(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "id": "x"}, {"prompt": "b", "id": "y"}, {"prompt": "c", "id": "x"}]
    with pytest.raises(UserError, match="lines 1 and 3 have the same id 'x'"):
        read_prompts(_write(tmp_path, *rows))


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (PromptKeys(), "prompt"),
        (PromptKeys(prompt="question", images="picture"), "picture"),
        (PromptKeys(prompt="question", reference="answr"), "answr"),
        (PromptKeys(prompt="question", label="kind"), "kind"),
    ],
)
def test_a_column_no_row_has_is_named_with_those_there_are(
    tmp_path: Path, keys: PromptKeys, name: str
) -> None:
    path = _write(tmp_path, {"question": "q", "answer": "a"})
    with pytest.raises(UserError, match=f"no row has a column '{name}'; .* answer, question"):
        read_prompts(path, keys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"\n  \n", "the file is empty"),
        (b'{"prompt": "\xff"}', "not UTF-8 at byte 12"),
    ],
)
def test_a_file_that_is_no_jsonl_is_an_error(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_prompts(path)


def test_prompts_import_neither_torch_nor_transformers_nor_pillow() -> None:
    """The driver's prompt side stays light."""
    code = "import lightrft_ray.data.prompt_source, sys; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert not {"torch", "transformers", "PIL", "numpy"} & set(modules.split())
