"""Demonstrations are prompts with the tokens of a response."""

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.demonstrations import Demonstration, read_demonstrations
from lightrft_ray.data.processing import load_processor, tokenizer_of
from lightrft_ray.data.prompts import PromptKeys
from lightrft_ray.data.reading import ReadRules


@pytest.fixture(scope="module")
def tokenizer(tiny_vlm: Path) -> PreTrainedTokenizerBase:
    return tokenizer_of(load_processor(tiny_vlm))


def _read(
    path: Path, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, object]], bad: float = 0.0
) -> tuple[list[Demonstration], int]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = PromptKeys(reference="response")
    rules = ReadRules(keys, max_bad_fraction=bad)
    return read_demonstrations(str(path), rules, tokenizer, max_tokens=4)


def test_a_response_ends_with_the_end_of_the_turn(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    rows = [
        {"prompt": "one?", "response": "1", "images": ["a.png"], "id": "a"},
        {"prompt": [{"role": "user", "content": "two?"}], "response": 2},
    ]
    demonstrations, bad = _read(tmp_path / "data.jsonl", tokenizer, rows)
    assert bad == 0
    first, second = demonstrations
    assert (first.prompt.id, first.prompt.images) == ("a", ("a.png",))
    assert first.prompt.image_root == tmp_path
    for demonstration, text in ((first, "1"), (second, "2")):
        *answer, end = demonstration.response_ids.tolist()
        assert tokenizer.decode(answer) == text
        assert end == tokenizer.eos_token_id


def test_rows_that_cannot_be_used_are_left_out_and_counted(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    rows = [
        {"prompt": "a", "response": "1"},
        {"prompt": "b", "response": ""},
        {"prompt": "c", "response": "1" * 9},
        {"prompt": "d", "response": None},
    ]
    demonstrations, bad = _read(tmp_path / "data.jsonl", tokenizer, rows, bad=0.75)
    assert [each.prompt.messages[0]["content"] for each in demonstrations] == ["a"]
    assert bad == 3
    with pytest.raises(UserError) as refusal:
        _read(tmp_path / "data.jsonl", tokenizer, rows[:3], bad=0.5)
    for part in ("2 of 3 rows", "data.max_bad_fraction", "rollout.generate_max_len 4", "1 to 10"):
        assert part in str(refusal.value)


def test_a_file_without_responses_is_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(UserError, match="no row has a column 'response'"):
        _read(tmp_path / "data.jsonl", tokenizer, [{"prompt": "a", "reference": "1"}])
