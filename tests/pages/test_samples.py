"""The table of samples: filters, search, sorting, tokens, pictures; and texts that are hostile."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from run_folders import write_run

from lightrft_ray.observe.viewer.embedded import Limits, static_page
from lightrft_ray.observe.viewer.run_files import open_runs

from .conftest import Open

HOSTILE = (
    "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
    "<svg onload='window.ran = 1'> <!-- @PROGRAM@ javascript:alert(1) \u2028"
)


def rows(page: Page) -> Any:
    return page.locator("#samples tbody tr")


def test_samples_of_the_last_step_are_shown_with_pictures(open_page: Open, run: Path) -> None:
    page = open_page(run)
    expect(rows(page)).to_have_count(8)
    expect(page.locator("#samples .status")).to_have_text("8 of 8 samples")
    picture = page.locator("#samples .detail img")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 56)
    expect(page.locator(".detail")).to_contain_text("Which digit is this?")


def test_filters(open_page: Open, run: Path) -> None:
    page = open_page(run)
    page.get_by_label("Chosen as").select_option("failed")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("none")
    page.get_by_label("Chosen as").select_option("")
    page.get_by_label("Reward at least").fill("1")
    rewards = page.locator("#samples td.of-reward")
    expect(rewards.filter(has_text=re.compile("^(0|none)$"))).to_have_count(0)
    expect(rewards.first).to_have_text("1")
    page.get_by_label("Reward at most").fill("0.5")
    expect(rows(page)).to_have_count(0)


def test_search_goes_through_all_steps(open_page: Open, tmp_path: Path) -> None:
    def change(sample: dict[str, Any]) -> None:
        if sample["step"] == 7 and sample["sample_index"] == 3:
            sample["response"] = "a Needle in the hay"

    page = open_page(write_run(tmp_path / "run", steps=20, change=change))
    page.get_by_label("Search").fill("needle")
    expect(rows(page)).to_have_count(0)
    page.locator("#samples .choices select").select_option("all")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("a Needle in the hay")
    expect(page.locator("#samples .status")).to_have_text("1 of 160 samples")


def test_many_samples_come_in_pages(open_page: Open, tmp_path: Path) -> None:
    page = open_page(write_run(tmp_path / "run", steps=40, samples=8, tokens=200))
    page.locator("#samples .choices select").select_option("all")
    more = page.get_by_role("button", name="Search on")
    expect(more).to_be_visible()
    first = rows(page).count()
    assert 100 <= first < 320
    while more.is_visible():
        more.click()
        page.wait_for_timeout(100)
    expect(rows(page)).to_have_count(320)


def test_sorting_by_a_head(open_page: Open, run: Path) -> None:
    page = open_page(run)
    head = page.locator("#samples th", has_text="reward")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    values = page.locator("#samples td.of-reward").all_inner_texts()
    assert values == sorted(values, key=lambda text: -1 if text == "none" else float(text))[::-1]


def test_rows_are_walked_by_keyboard(open_page: Open, run: Path) -> None:
    page = open_page(run)
    rows(page).first.focus()
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(1)).to_be_focused()
    expect(rows(page).nth(1)).to_have_attribute("aria-selected", "true")
    expect(page.locator(".detail h3")).to_contain_text("sample 1")
    page.keyboard.press("End")
    expect(page.locator(".detail h3")).to_contain_text("sample 7")


def test_tokens_are_coloured_by_the_chosen_value(open_page: Open, run: Path) -> None:
    page = open_page(run)
    tokens = page.locator(".detail .token")
    expect(tokens).to_have_count(24)
    choice = page.get_by_label("Colour by")
    assert len(choice.locator("option").all()) == 9
    seen = set()
    for key in ("rollout_log_prob", "gap", "entropy", "advantage", "weight_version"):
        choice.select_option(key)
        seen.add(
            tuple(tokens.evaluate_all("all => all.map(e => getComputedStyle(e).backgroundColor)"))
        )
    assert len(seen) == 5
    choice.select_option("")
    assert tokens.first.get_attribute("class") == "token"


def test_values_of_a_token_by_keyboard(open_page: Open, run: Path) -> None:
    page = open_page(run)
    page.locator(".detail .token").first.focus()
    page.keyboard.press("ArrowRight")
    inspector = page.locator(".inspector")
    expect(inspector).to_contain_text("token 2, id")
    for word in ("log-prob in the rollout", "entropy", "advantage", "weight version 59"):
        expect(inspector).to_contain_text(word)


def test_hostile_texts_are_shown_and_not_run(open_page: Open, tmp_path: Path) -> None:
    def change(sample: dict[str, Any]) -> None:
        sample["prompt"].append({"type": "text", "text": HOSTILE})
        sample["response"] = sample["reference"] = sample["prompt_id"] = HOSTILE
        sample["finish_reason"] = sample["label"] = HOSTILE
        sample["rules"] = [HOSTILE]
        sample["tokens"]["text"][0] = HOSTILE
        sample["reward_components"] = {HOSTILE: 1.0}

    run = write_run(tmp_path / "<b>run", steps=3, change=change)
    (run / "config.yaml").write_text(f"trainer: {{note: {HOSTILE!r}}}\n".replace("\\u2028", ""))
    html = tmp_path / "page.html"
    html.write_text(static_page(open_runs([run]), Limits(), HOSTILE), encoding="utf-8")
    for page in (open_page(run), open_page(html=html)):
        expect(page.locator(".detail .prompt")).to_contain_text("<script>window.ran = 1</script>")
        expect(page.locator(".detail .token").first).to_contain_text("onerror='window.ran = 1'")
        expect(page.locator(".detail svg")).to_have_count(0)
        expect(page.locator("#overview h3")).to_contain_text("<b>run")
        assert page.evaluate("window.ran") is None


def test_a_script_that_got_into_the_page_would_not_run(open_page: Open, run: Path) -> None:
    page = open_page(run, watched=False)
    blocked: list[str] = []
    page.on("console", lambda message: blocked.append(message.text))
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = 1";
          document.body.append(script);
        }"""
    )
    assert page.evaluate("window.ran") is None
    page.wait_for_timeout(50)
    assert any(re.search("Content.Security.Policy", text) for text in blocked)
