"""Curves, timeline and settings, by pointer and by keyboard, light and dark, of one run and two."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from run_folders import write_run

from .conftest import Open

COLOURED = """canvas => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const name = getComputedStyle(canvas).getPropertyValue("COLOUR").trim();
  const wanted = [1, 3, 5].map((place) => parseInt(name.slice(place, place + 2), 16));
  let count = 0;
  for (let place = 0; place < data.length; place += 4)
    if (data[place + 3] > 200 && wanted.every((each, at) => Math.abs(each - data[place + at]) < 12))
      count += 1;
  return count;
}"""


def chart(page: Page, name: str) -> Page:
    found = page.locator(f'[data-metric="{name}"]')
    found.scroll_into_view_if_needed()
    return found


def coloured(page: Page, name: str, run: int) -> int:
    """How many points of the chart's canvas have the colour of a run."""
    expect(chart(page, name)).to_have_attribute("data-drawn", "true")
    return page.locator(f'[data-metric="{name}"] canvas').evaluate(
        COLOURED.replace("COLOUR", f"--run-{run}")
    )


def test_curves_are_drawn_and_explained(open_page: Open, run: Path) -> None:
    page = open_page(run)
    assert coloured(page, "reward/mean", 0) > 100
    assert coloured(page, "policy/loss", 0) > 100
    assert coloured(page, "reward/mean", 1) == 0
    expect(chart(page, "policy/entropy")).to_contain_text("mean entropy of the next-token")
    expect(page.locator("#overview")).to_contain_text("finished")


def test_the_token_leaves_the_address(open_page: Open, run: Path) -> None:
    page = open_page(run)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", page.url)
    page.context.clear_cookies()
    page.reload(wait_until="commit")
    expect(page.locator("body")).to_contain_text("open the address that launch/view.py printed")


def test_pointing_at_a_curve_shows_its_value_in_all_charts(open_page: Open, run: Path) -> None:
    page = open_page(run)
    plot = page.locator('[data-metric="reward/mean"] .plot')
    plot.hover(position={"x": 150, "y": 80})
    tip = plot.locator(".tip")
    expect(tip).to_contain_text("step")
    expect(page.locator('[data-metric="eval/accuracy"] .cursor')).to_be_visible()
    before = tip.inner_text()
    plot.hover(position={"x": 200, "y": 80})
    assert tip.inner_text() != before


def test_a_curve_is_read_and_a_step_chosen_by_keyboard(open_page: Open, run: Path) -> None:
    page = open_page(run)
    plot = page.locator('[data-metric="reward/mean"] .plot')
    plot.focus()
    page.keyboard.press("Home")
    expect(plot.locator(".tip")).to_contain_text("step 1")
    for _ in range(19):
        page.keyboard.press("ArrowRight")
    expect(page.locator('[data-metric="reward/mean"] [aria-live]')).to_contain_text("step 20")
    page.keyboard.press("Enter")
    expect(page.locator("#timeline .hint")).to_contain_text("step 20")
    expect(page.locator("#samples .choices select")).to_have_value("20")
    assert "Arrow keys" in (plot.get_attribute("aria-label") or "")


def test_dragging_zooms_and_escape_shows_all_again(open_page: Open, run: Path) -> None:
    page = open_page(run)
    box = page.locator('[data-metric="reward/mean"] .plot').bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 80, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 60)
    page.mouse.up()
    expect(page.get_by_role("button", name="Show all steps")).to_be_visible()
    page.locator('[data-metric="reward/mean"] .plot').press("Escape")
    expect(page.get_by_role("button", name="Show all steps")).to_be_hidden()


def test_smoothing_and_search_of_metrics(open_page: Open, run: Path) -> None:
    page = open_page(run)
    latest = page.locator('[data-metric="reward/mean"] .latest')
    smooth = latest.inner_text()
    page.get_by_label("Smoothing").fill("0")
    expect(latest).not_to_have_text(smooth)
    page.get_by_label("Find a metric").fill("gradient norm")
    expect(page.locator('[data-metric="policy/grad_norm"]')).to_be_visible()
    expect(page.locator('[data-metric="reward/mean"]')).to_be_hidden()
    page.get_by_label("Find a metric").fill("no such thing")
    expect(page.locator("#curves")).to_contain_text("No metric holds “no such thing”.")


def test_curves_across_samples_and_hours(open_page: Open, run: Path) -> None:
    page = open_page(run)
    for axis in ("samples", "hours"):
        page.get_by_label("Across").select_option(axis)
        assert coloured(page, "reward/mean", 0) > 100


def test_two_runs_are_compared(open_page: Open, run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", steps=30, seed=1, estimator="rloo", finished=False)
    page = open_page(run, other)
    assert min(coloured(page, "reward/mean", each) for each in (0, 1)) > 100
    page.get_by_label("only what differs").check()
    rows = page.locator("#settings tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("group_norm")
    expect(rows.first).to_contain_text("rloo")
    page.locator(".chip", has_text="digits").locator("input").uncheck()
    expect(page.locator("#overview article")).to_have_count(1)
    assert coloured(page, "reward/mean", 0) == 0


def test_the_timeline_shows_who_was_busy(open_page: Open, run: Path) -> None:
    page = open_page(run)
    lanes = page.locator("#timeline .lane")
    expect(lanes).to_have_count(5)
    expect(lanes.nth(1)).to_have_attribute(
        "aria-label", re.compile("generator/0, busy [0-9]+ %: generate")
    )
    page.get_by_role("button", name="← earlier").click()
    expect(page.locator("#timeline .hint")).to_contain_text("step 57")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(open_page: Open, run: Path, scheme: str) -> None:
    page = open_page(run, color_scheme=scheme)
    html, body = page.locator("html"), page.locator("body")
    expect(html).to_have_attribute("data-theme", scheme)
    before = body.evaluate("body => getComputedStyle(body).backgroundColor")
    page.get_by_role("button", name="colours").click()
    assert body.evaluate("body => getComputedStyle(body).backgroundColor") != before
    assert coloured(page, "reward/mean", 0) > 100
    page.reload()
    expect(html).not_to_have_attribute("data-theme", scheme)


def test_a_narrow_window_needs_no_sideways_scrolling(open_page: Open, run: Path) -> None:
    page = open_page(run, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_control_has_a_name(open_page: Open, run: Path) -> None:
    page = open_page(run)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, [tabindex]")].filter(
          (each) => !each.labels?.length && !(each.getAttribute("aria-label") ?? each.textContent))
          .map((each) => each.outerHTML)"""
    )
    assert nameless == []
