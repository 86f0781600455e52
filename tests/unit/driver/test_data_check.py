"""`launch/check_data.py`: counts, reasons, the page of samples and the exit status."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from launch.check_data import main
from lightrft_ray.data.findings import bars, histogram, kinds
from lightrft_ray.data.readers.rows import BadRow

ATTACK = "<script>alert('x')</script>"


def _data(folder: Path) -> Path:
    """Twelve good rows, and four that cannot be used."""
    rows: list[object] = []
    for place in range(12):
        Image.new("RGB", (56, 56 + place), (place, 0, 0)).save(folder / f"{place}.png")
        row = {"prompt": f"{ATTACK} {place}", "images": [f"{place}.png"], "reference": "<b>1"}
        rows.append(row)
    rows += [
        {"prompt": "gone", "images": ["gone.png"], "reference": "1"},
        {"prompt": "x" * 500, "reference": "1"},
        {"prompt": 7, "reference": "1"},
        {"prompt": 8, "reference": "1"},
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _check(path: Path, *more: str) -> int:
    return main(["--prompt_data", str(path), f"--page={path.parent / 'page.html'}", *more])


def test_bad_rows_are_counted_by_reason_and_samples_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(_data(tmp_path), "--max_bad_fraction", "0.3") == 1
    lines = capsys.readouterr().out
    for part in (
        "(training): 12 usable prompts, layout lightrft",
        "2 bad rows, by reason",
        "2  the prompt is neither a text nor a list of chat messages (first:",
        "line 15, 16",
        "image gone.png: does not exist",
        "line 13",
        "over data.prompt_max_len 128: line 14",
        "tokens of a prompt, media included",
        "pixels of an image",
    ):
        assert part in lines, part
    page = (tmp_path / "page.html").read_text()
    assert page.count("<section>") == 10
    assert page.count("data:image/png;base64,") == 10
    assert "<script" not in page and "&lt;script&gt;" in page and "&lt;b&gt;1" in page
    assert not re.search(r"(?:src|href)=.(?!data:)", page)


def test_every_source_has_its_part_of_the_samples(tmp_path: Path) -> None:
    for name, count in (("a", 30), ("b", 3), ("c", 30)):
        rows = [{"prompt": f"{name}-{place}", "reference": "1"} for place in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ",".join(str(tmp_path / f"{name}.jsonl") for name in "abc")
    assert main(["--prompt_data", names, f"--page={tmp_path / 'page.html'}"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<section>") == 10
    assert [len(set(re.findall(rf"\b{name}-\d+", page))) for name in "abc"] == [4, 3, 3]


def test_too_many_bad_rows_are_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        _check(_data(tmp_path), "--max_bad_fraction", "0.1")
    assert status.value.code == 2
    shown = capsys.readouterr()
    assert "2 bad rows" in shown.out
    assert "4 of 16 rows" in shown.err and "data.max_bad_fraction" in shown.err


@pytest.mark.parametrize("more", [["--prompt_data"], ["--page", "/nowhere/a.html"], ["--layuot=x"]])
def test_mistakes_are_status_2(tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "reference": "1"}\n')
    words = ["--prompt_data", str(path), *more] if more[0] != "--prompt_data" else more
    with pytest.raises(SystemExit) as status:
        main(words)
    assert status.value.code == 2


def test_data_without_a_fault_are_status_0(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "reference": "1"}\n{"prompt": "b", "reference": "1"}\n')
    assert _check(path) == 0


def test_histograms_hold_every_value() -> None:
    assert histogram([]) == []
    assert histogram([5, 5]) == [(5, 5, 2)]
    values = [1, 2, 3, 50, 99, 100]
    bins = histogram(values)
    assert sum(count for _, _, count in bins) == len(values)
    assert (bins[0][0], bins[-1][1]) == (1, 100)
    assert bars([5, 5]) == ["5        2  " + "█" * 40]


def test_reasons_that_differ_in_names_and_numbers_are_one_kind() -> None:
    reasons = [
        "no 'a'",
        "image a.png: has 1x2",
        "image b.png: has 30x4",
        "image c: is 5.5",
        "no 'b'",
    ]
    reasons.append("image d.png: has 7x7")
    found = kinds(BadRow(place, reason) for place, reason in enumerate(reasons))
    assert [(kind.reason, len(kind.rows)) for kind in found] == [
        ("image …: has #", 3),
        ("no '…'", 2),
        ("image …: is #", 1),
    ]
