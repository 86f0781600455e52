"""Progress: one plain line a step away from a terminal, a live view on one."""

import io
import os
import pty
from contextlib import suppress

import pytest

from lightrft_ray.observe.formatting import duration, number, seconds
from lightrft_ray.observe.live_view import LiveView
from lightrft_ray.observe.progress import Progress
from lightrft_ray.observe.step_figures import StepReader

RECORD = {
    "step": 12,
    "reward/mean": 0.412,
    "eval/accuracy": 0.55,
    "kl/reference_mean": 0.0012,
    "speed/tokens_per_second": 412.4,
    "time/step": 1.02,
    "time/generate": 0.51,
    "time/score": 0.08,
    "time/assemble": 0.004,
    "time/train": 0.31,
    "time/publish": 0.05,
}


def test_a_plain_step_is_one_line_of_its_figures() -> None:
    stream = io.StringIO()
    with Progress(300, "plain", stream) as progress:
        progress.update(RECORD)
    assert stream.getvalue() == (
        "step  12/300  reward 0.412  acc 0.55  kl 0.0012  412 tok/s  1.02 s "
        "(generate 0.51 score 0.08 train 0.31 publish 0.05)  ETA 4m 54s\n"
    )


def test_what_is_not_measured_is_a_dash_and_the_latest_accuracy_stays() -> None:
    stream = io.StringIO()
    with Progress(20, "plain", stream) as progress:
        progress.update({"step": 0, "eval/accuracy": 0.31})
        progress.update({"step": 1, "reward/mean": float("nan")})
    first, second = stream.getvalue().splitlines()
    assert first == "step  0/20  reward -  acc 0.31  kl -  - tok/s  - s  ETA -"
    assert second == "step  1/20  reward -  acc 0.31  kl -  - tok/s  - s  ETA -"


def test_plain_mode_shows_phases_and_messages_as_they_are() -> None:
    stream = io.StringIO()
    with Progress(2, "plain", stream) as progress:
        progress.phase("starting vLLM")
        progress.message("skipped [prompt 7]: no image")
    assert stream.getvalue() == "starting vLLM …\nskipped [prompt 7]: no image\n"


def test_off_shows_messages_alone() -> None:
    stream = io.StringIO()
    with Progress(2, "off", stream) as progress:
        progress.phase("starting vLLM")
        progress.update(RECORD)
        progress.message("the reward endpoint is slow")
    assert stream.getvalue() == "the reward endpoint is slow\n"


def test_auto_is_plain_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Progress(300, "auto", stream) as progress:
        progress.update(RECORD)
    assert stream.getvalue().startswith("step  12/300")
    assert "\x1b" not in stream.getvalue()


def test_auto_is_live_on_a_terminal() -> None:
    screen, program = pty.openpty()
    with os.fdopen(program, "w") as terminal, Progress(300, "auto", terminal) as progress:
        progress.update(RECORD)
    shown = _read_to_end(screen)
    assert "\x1b[?25l" in shown  # the cursor is hidden while the view redraws itself
    assert shown.rstrip().endswith("\x1b[?25h")  # and is given back


def test_the_live_view_shows_bar_time_left_and_figures() -> None:
    shown = _live([RECORD])
    assert "12/300" in shown
    assert "ETA 4m 54s" in shown
    for text in ("reward", "0.412", "0.550", "0.0012", "412", "1.02", "generate", "0.51", "0.05"):
        assert text in shown, text
    assert "assemble" not in shown  # 4 ms would read 0.00


def test_the_live_view_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    record = RECORD | {"step": 1234, "speed/tokens_per_second": 12345.0, "time/eval": 12.34}
    shown = _live([record | {"time/assemble": 0.01}])
    for text in ("1234", "12345", "0.0012", "assemble", "publish", "eval", "12.3"):
        assert text in shown, text


def test_the_live_view_keeps_messages_above_and_markup_as_text() -> None:
    stream = io.StringIO()
    with Progress(300, "live", stream) as progress:
        progress.phase("starting [vLLM]")
        progress.message("skipped [prompt 7]")
        progress.update(RECORD)
    shown = stream.getvalue()
    assert "skipped [prompt 7]" in shown
    assert shown.index("skipped [prompt 7]") < shown.rindex("0.412")


def test_a_phase_is_shown_beside_the_bar() -> None:
    stream = io.StringIO()
    view = LiveView(3, stream)
    view.start()
    view.phase("starting [vLLM]")
    view.stop()
    assert "starting [vLLM] …" in stream.getvalue()


def test_the_live_view_ends_when_the_run_fails() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError, match="boom"), Progress(3, "live", stream):
        raise RuntimeError("boom")
    assert stream.getvalue().rstrip().endswith("\x1b[?25h")


def test_time_left_goes_by_the_mean_of_the_last_twenty_steps() -> None:
    reader = StepReader(100)
    for step in range(1, 11):
        reader.read({"step": step, "time/step": 100.0})
    for step in range(11, 30):
        reader.read({"step": step, "time/step": 2.0})
    assert reader.read({"step": 30, "time/step": 2.0}).eta == 2.0 * 70


def test_the_evaluation_before_training_does_not_count_for_the_time_left() -> None:
    reader = StepReader(10)
    assert reader.read({"step": 0, "time/step": 60.0}).eta is None
    assert reader.read({"step": 1, "time/step": 1.0}).eta == 9.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2, "0s"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (252, "4m 12s"),
        (3599.7, "1h 00m"),
        (3780, "1h 03m"),
        (None, "-"),
        (float("nan"), "-"),
    ],
)
def test_durations(value: float | None, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.514, "0.51"), (9.996, "10.0"), (12.34, "12.3"), (99.96, "100"), (1234.5, "1234")],
)
def test_seconds_of_a_phase_have_three_digits(value: float, text: str) -> None:
    assert seconds(value) == text


def test_a_missing_number_is_a_dash() -> None:
    assert [number(x, ".1f") for x in (None, float("nan"), 0.25)] == ["-", "-", "0.2"]
    assert [seconds(x) for x in (None, float("nan"))] == ["-", "-"]


def _live(records: list[dict[str, float]]) -> str:
    stream = io.StringIO()
    with Progress(300, "live", stream) as progress:
        for record in records:
            progress.update(record)
    return stream.getvalue()


def _read_to_end(screen: int) -> str:
    """What a pseudo-terminal shows whose program side is closed: its end is an OSError."""
    shown = b""
    with suppress(OSError):
        while chunk := os.read(screen, 4096):
            shown += chunk
    os.close(screen)
    return shown.decode()
