"""What the viewer reads of a run, and what it puts into a static page."""

import json
import random
import re
from pathlib import Path

import pytest
from run_folders import spans_of, write_lines, write_run

from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.viewer.embedded import Limits, static_page, write_report
from lightrft_ray.observe.viewer.metric_columns import read_columns, thinned
from lightrft_ray.observe.viewer.page import bundle, json_for_html, render_page
from lightrft_ray.observe.viewer.run_files import open_runs
from lightrft_ray.observe.viewer.timeline_rows import TimelineRows


def data_of(page: str) -> dict[str, list[dict[str, dict[str, object]]]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, list[dict[str, dict[str, object]]]] = json.loads(found[1])
    return data


def test_records_written_again_replace_the_abandoned(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    write_lines(file, [{"step": step, "reward/mean": 0.1 * step} for step in (1, 2, 3, 2)])
    columns = read_columns(file)
    assert columns["steps"] == [1, 2]
    assert columns["columns"]["reward/mean"] == [0.1, 0.2]


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    good = '{"step": 1, "policy/loss": NaN, "kl/coef": null, "x/new": 2, "text": "no"}\n'
    bad = [
        "[]\n",
        '{"step": null}\n',
        '{"policy/loss": 1}\n',
        '{"step": ' + "9" * 400 + "}\n",
        "{\n",
    ]
    file.write_text(good + "".join(bad) + '{"step": 2, "policy/lo')
    columns = read_columns(file)
    assert columns["damaged"] == len(bad)
    assert columns["columns"] == {"policy/loss": [None], "kl/coef": [None], "x/new": [2.0]}
    assert columns["info"]["x/new"]["meaning"] == ""


def test_thinning_keeps_the_ends_and_every_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "reward/mean": 0.5} for step in range(1000)]
    rows[333]["eval/accuracy"] = 0.9
    write_lines(file, rows)
    thin = thinned(read_columns(file), 100)
    assert thin["steps"][0] == 0 and thin["steps"][-1] == 999 and 333 in thin["steps"]
    assert len(thin["steps"]) <= 103
    assert {len(column) for column in thin["columns"].values()} == {len(thin["steps"])}


def test_the_timeline_follows_its_file(tmp_path: Path) -> None:
    file = tmp_path / "timeline.jsonl"
    rows = TimelineRows(file)
    assert rows.read(0, 5) == []
    draw = random.Random(0)
    lines = [json.dumps(spans_of(step, draw)) + "\n" for step in range(1, 8)]
    file.write_text("".join(lines[:3]) + lines[3][:30])
    assert [row.step for row in rows.read(2, 5)] == [2, 3]
    file.write_text("".join(lines[:5]))
    assert [row.step for row in rows.read(2, 2)] == [2, 3]
    assert rows.steps() == [1, 2, 3, 4, 5]
    file.write_text(lines[6])  # another run, whose file is shorter
    assert rows.steps() == [7]


def test_a_static_page_is_bounded(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=40, samples=8, every=2)
    limits = Limits(metric_steps=10, samples=12, timeline_steps=3)
    (data,) = data_of(static_page(open_runs([run]), limits, "title"))["runs"]
    assert len(data["metrics"]["steps"]) <= 12
    assert len(data["samples"]) == 12
    assert {sample["step"] for sample in data["samples"]} == {40, 38}
    assert [row["step"] for row in data["timeline"]] == [38, 39, 40]
    few = static_page(open_runs([run]), Limits(bytes=6000), "title")
    assert 0 < len(data_of(few)["runs"][0]["samples"]) < 6


def test_a_report_has_ten_samples_of_all_rules_and_replaces_the_one_before(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run", steps=20, samples=20, every=10))
    for _ in range(2):
        write_report(folder)
    (data,) = data_of(folder.report.read_text())["runs"]
    rules = [sample["rules"][0] for sample in data["samples"]]
    assert len(rules) == 10
    assert set(rules) == {"best", "worst", "random", "failed"}


def test_a_report_of_a_run_that_wrote_no_samples(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
    write_report(RunFolder(tmp_path))
    (data,) = data_of((tmp_path / "report.html").read_text())["runs"]
    assert (data["samples"], data["timeline"]) == ([], [])


def test_data_cannot_end_its_element() -> None:
    text = "</script><!-- & \u2028 @STYLE@"
    page = render_page({"text": text}, "</title><script>")
    assert data_of(page) == {"text": text}
    assert "</title><script>" not in page
    assert not set("<>&") & set(json_for_html(text))


def test_numbers_that_json_cannot_spell_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_for_html(float("nan"))


def test_all_modules_are_in_the_page_and_use_no_markup() -> None:
    assets = Path(render_page.__code__.co_filename).parent / "assets"
    program = bundle()
    for module in assets.glob("*.js"):
        assert f"const module_{module.stem} = " in program
        assert len(module.read_text().splitlines()) < 300
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "import ",
    ):
        assert word not in program, word
