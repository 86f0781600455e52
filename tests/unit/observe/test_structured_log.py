"""Logs: one JSON object a line, one run id, nothing secret, users' content cut short."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightrft_ray.config.secrets import redact
from lightrft_ray.observe.progress import Progress
from lightrft_ray.observe.structured_log import logged, shortened, worker_variables

_LOGGER = logging.getLogger("lightrft_ray.some.module")


def _entries(tmp_path: Path, level: str, say: Callable[[], None]) -> list[dict[str, object]]:
    path = tmp_path / "log.jsonl"
    with logged(path, "run-7", level):
        say()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_has_time_level_run_role_logger_and_message(tmp_path: Path) -> None:
    (entry,) = _entries(tmp_path, "info", lambda: _LOGGER.info("loaded %d rows", 3))
    assert entry.keys() == {"time", "level", "run_id", "role", "pid", "logger", "message"}
    assert (entry["level"], entry["run_id"], entry["role"]) == ("info", "run-7", "driver")
    assert (entry["logger"], entry["message"]) == ("lightrft_ray.some.module", "loaded 3 rows")
    assert str(entry["time"]).endswith("+00:00")


@pytest.mark.parametrize(("level", "count"), [("debug", 3), ("info", 2), ("error", 0)])
def test_levels(tmp_path: Path, level: str, count: int) -> None:
    def say() -> None:
        _LOGGER.debug("a")
        _LOGGER.info("b")
        _LOGGER.warning("c")

    assert len(_entries(tmp_path, level, say)) == count


def test_what_users_say_is_cut_and_stays_on_its_line(tmp_path: Path) -> None:
    response = "step one\n" * 500

    def say() -> None:
        _LOGGER.info("a bad response", extra={"response": response})

    (entry,) = _entries(tmp_path, "info", say)
    assert len(str(entry["response"])) < 250
    assert "(4500 characters)" in str(entry["response"])
    assert shortened("a\n b") == "a b"


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    (entry,) = _entries(tmp_path, "info", lambda: _LOGGER.info("x" * 10_000))
    assert len(str(entry["message"])) < 2100


def test_secrets_stay_out_of_messages_extras_and_tracebacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "0123456789abcdef-secret"
    monkeypatch.setenv("REWARD_TOKEN", secret)

    def say() -> None:
        _LOGGER.info("asked with %s", secret)
        _LOGGER.info("asked", extra={"header": f"Bearer {secret}"})
        try:
            raise RuntimeError(f"refused: {secret}")
        except RuntimeError:
            _LOGGER.exception("failed")

    entries = _entries(tmp_path, "info", say)
    assert len(entries) == 3
    assert "RuntimeError" in str(entries[2]["traceback"])
    assert secret not in (tmp_path / "log.jsonl").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:pa55@host/x", "https://***@host/x"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("key hf_abcdefghijklmnopqrst is bad", "key *** is bad"),
        ("api_key=abcd1234", "api_key=***"),
        ('{"password": "hunter22"}', '{"password": "***"}'),
        ("the response has 12 tokens: fine", "the response has 12 tokens: fine"),
        ("reward 0.5 at s3://bucket/key", "reward 0.5 at s3://bucket/key"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, expected: str) -> None:
    assert redact(text, {}) == expected


def test_values_of_variables_are_secret_by_their_names() -> None:
    variables = {"WANDB_API_KEY": "q1w2e3r4t5", "HOME": "/home/somebody", "A_TOKEN": "short"}
    text = "q1w2e3r4t5 in /home/somebody is short"
    assert redact(text, variables) == "*** in /home/somebody is short"


def test_messages_of_progress_are_masked_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWARD_TOKEN", "q1w2e3r4t5")

    def say() -> None:
        with Progress(3, "plain") as progress:
            progress.message("refused: q1w2e3r4t5")
            progress.update({"step": 1, "reward/mean": 0.5})

    message, step = _entries(tmp_path, "info", say)
    assert (message["level"], message["message"]) == ("warning", "refused: ***")
    assert "refused: ***\n" in capsys.readouterr().out
    assert step["step"] == 1


def test_a_worker_logs_under_the_run_that_started_it() -> None:
    code = (
        "import logging; from lightrft_ray.observe.structured_log import log_as_worker\n"
        "log_as_worker(); logging.getLogger('lightrft_ray.workers').warning('hello')"
    )
    variables = worker_variables("run-7", "learner/0", "warning")
    for given in (variables, {}):
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[3]), **given},
            capture_output=True,
            text=True,
            check=True,
        )
        (line,) = result.stderr.splitlines()
        if given:
            entry = json.loads(line)
            assert (entry["run_id"], entry["role"]) == ("run-7", "learner/0")
        else:
            assert line == "hello"
