"""A headless Chromium, and pages of runs in it that may not report an error."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from run_folders import write_run

from lightrft_ray.observe.viewer.run_files import open_runs
from lightrft_ray.observe.viewer.server import ViewerServer

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
WHERE_FROM = "install Debian's chromium, or name one with CHROMIUM=/path"

Open = Callable[..., Page]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CHROMIUM is None:
        terminalreporter.write_line(
            f"THE PAGE TESTS WERE SKIPPED: there is no Chromium here; {WHERE_FROM}", yellow=True
        )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(f"no Chromium: {WHERE_FROM}")
    with sync_playwright() as playwright:
        # A container's /dev/shm is often too small for it.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which no test changes."""
    return write_run(tmp_path_factory.mktemp("runs") / "digits", steps=60, every=10)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a page of runs, served, or of an HTML file; a test ends with no error on any of them.

    What it asked for and did not get is no error of the page.
    """
    errors: list[str] = []
    with ExitStack() as stack:

        def open_it(
            *runs: Path, html: Path | None = None, watched: bool = True, **options: object
        ) -> Page:
            url = html.as_uri() if html is not None else stack.enter_context(serving(*runs)).url
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(10_000)
            if watched:
                page.on("pageerror", lambda error: errors.append(str(error)))
                page.on("console", lambda said: errors.extend(complaints(said.type, said.text)))
            page.goto(url)
            page.wait_for_selector("body[data-ready]")
            return page

        yield open_it
    assert errors == []


def complaints(kind: str, text: str) -> list[str]:
    return [text] if kind == "error" and not text.startswith("Failed to load resource") else []


class serving(ViewerServer):  # noqa: N801 - a context manager that reads like one
    """A server of runs that answers while its block runs."""

    def __init__(self, *folders: Path) -> None:
        super().__init__(open_runs(folders), 0)

    def __enter__(self) -> "serving":
        Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
