"""Runs that are still written, cut short, damaged, huge; and a page without a server."""

import json
import random
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from run_folders import metrics_of, write_long_run, write_run

from lightrft_ray.observe.viewer.embedded import Limits, static_page
from lightrft_ray.observe.viewer.run_files import open_runs

from .conftest import Open

# The longest time for which nothing was painted while something else went on.
LONGEST_PAUSE = """() => {
  window.pause = 0;
  let last = performance.now();
  const frame = (now) => {
    window.pause = Math.max(window.pause, now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""


def test_a_run_that_goes_on_is_followed(open_page: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=20, every=10, finished=False)
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:10]) + lines[10][:40])  # the last line is being written
    page = open_page(run)
    expect(page.locator("#overview")).to_contain_text("step 9 of 20")
    expect(page.locator("#overview")).to_contain_text("running")
    expect(page.locator("#overview")).not_to_contain_text("damaged")
    metrics.write_text("".join(lines))
    expect(page.locator("#overview")).to_contain_text("step 20 of 20")
    (run / "summary.json").write_text('{"seconds_total": 90}')
    expect(page.locator("#overview")).to_contain_text("finished")


def test_a_run_without_any_step_yet(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trainer: {num_steps: 5}\n")
    page = open_page(tmp_path)
    for words in ("no step yet", "No step has been logged yet", "has written no samples yet"):
        expect(page.locator("main")).to_contain_text(words)


def test_damaged_lines_are_passed_over_and_counted(open_page: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=10)
    for file in (run / "metrics.jsonl", run / "trajectories" / "step_000010.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([lines[0], b'{"step": \n', b"\xff\xfe[]\n", *lines[1:]])[:-20])
    (run / "summary.json").write_text("{")
    (run / "config.yaml").write_text(": :\n- {")
    (run / "timeline.jsonl").write_text('{"step": 9, "spans": [{"who": 1}]}\n{"step": 10,')
    page = open_page(run)
    expect(page.locator("#overview")).to_contain_text("2 damaged lines in metrics.jsonl")
    expect(page.locator("#samples .status")).to_have_text(
        "7 of 7 samples · 2 damaged lines were passed over"
    )
    expect(page.locator("#timeline")).to_contain_text("Nothing is noted of these steps")
    expect(page.locator("#settings")).to_contain_text("There is no config.yaml")


def test_missing_pictures_and_values_leave_words_in_their_place(
    open_page: Open, tmp_path: Path
) -> None:
    def change(sample: dict[str, object]) -> None:
        sample["tokens"] = {"text": ["a", "b"], "id": [1, 2], "rollout_log_prob": [None, -1.0]}

    run = write_run(tmp_path / "run", steps=3, change=change)
    for picture in (run / "trajectories" / "images").iterdir():
        picture.unlink()
    page = open_page(run)
    page.locator(".detail .missing").scroll_into_view_if_needed()
    expect(page.locator(".detail .missing")).to_have_text("picture missing")
    expect(page.locator(".detail .token.unknown")).to_have_count(1)
    assert page.get_by_label("Colour by").locator("option").all_inner_texts() == [
        "nothing",
        "log-prob in the rollout",
    ]


def test_a_server_that_is_gone_is_said(open_page: Open, run: Path) -> None:
    page = open_page(run)
    page.route("**/api/runs", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_contain_text("does not answer any more")


def test_a_static_page_needs_no_server(open_page: Open, run: Path, tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    html.write_text(static_page(open_runs([run]), Limits(samples=10), "digits"), encoding="utf-8")
    page = open_page(html=html, offline=True)
    expect(page.locator('[data-metric="reward/mean"]')).to_have_attribute("data-drawn", "true")
    expect(page.locator("#samples .status")).to_contain_text("this page holds samples of 2 of the")
    picture = page.locator(".detail img")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 56)
    expect(page.locator("#timeline .lane")).to_have_count(5)


def seconds_to_open(page: Page) -> float:
    """From the request to the curves and the samples that are looked at first."""
    start = time.perf_counter()
    page.reload()
    page.wait_for_selector('[data-metric="reward/mean"][data-drawn]', timeout=60_000)
    page.wait_for_selector("#samples .detail .token", timeout=60_000)
    return time.perf_counter() - start


def test_a_run_of_50_mb_opens_in_two_seconds_and_stays_responsive(
    open_page: Open, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a machine is so slow that even a small run takes long, it may take twice as long."""
    size = write_long_run(tmp_path / "long")
    assert size > 50e6
    small = seconds_to_open(open_page(run))
    page = open_page(tmp_path / "long")
    opened = seconds_to_open(page)
    page.evaluate(LONGEST_PAUSE)
    page.get_by_label("Search").fill("words that nobody wrote")
    page.locator("#samples .choices select").select_option("all")
    start = time.perf_counter()
    expect(page.locator("#samples .status")).to_have_text("0 of 40,000 samples", timeout=120_000)
    searched = time.perf_counter() - start
    pause = page.evaluate("window.pause") / 1000
    with capsys.disabled():
        print(
            f"\n{size / 1e6:.0f} MB of samples: opened in {opened:.2f} s "
            f"(60 steps: {small:.2f} s), searched in {searched:.1f} s, "
            f"longest pause {pause:.2f} s"
        )
    assert opened < max(2, 2 * small)
    assert pause < max(0.3, small)


def test_steps_that_were_written_again_replace_the_abandoned(
    open_page: Open, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", steps=20, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(metrics_of(12, 20, random.Random(0))) + "\n")
    expect(open_page(run).locator("#overview")).to_contain_text("step 12 of 20")
