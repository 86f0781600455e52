"""Every command of the README is run by a test, or checked by its own program's parser.

Those that train are run by tests/integration, which ask `readme.documented` for their words.
"""

import ast
import http.client
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import ray.dashboard.modules.job.cli
from ray.scripts.scripts import cli as ray_cli
from readme import README, ROOT, blocks, commands, commands_in_text, documented
from run_folders import write_run

from launch import check_data, plan, view
from lightrft_ray.config.load import load_config
from lightrft_ray.data.prompts import read_prompts

ALL = sorted({*commands(), *commands_in_text()})
_OF_TWO_MACHINES = ("ray", "start", "--address=HEAD:6379")


def of_program(*names: str) -> list[tuple[str, ...]]:
    return [words for words in ALL if words[0] in names]


def asked_for() -> Iterator[tuple[str, ...]]:
    """The commands that any test takes from the README."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source if "documented(" in source else "")):
            match node:
                case ast.Call(func=ast.Name(id="documented"), args=[ast.Constant(value=str(text))]):
                    yield tuple(shlex.split(text))


def test_every_command_is_run_by_a_test() -> None:
    """Those of other programs, and one that takes a second machine, are parsed by these below."""
    parsed = {"cd", "make", ".venv/bin/pip"}
    run = {*asked_for(), _OF_TWO_MACHINES}
    assert [words for words in commands() if words not in run and words[0] not in parsed] == []


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOME": str(folder), "PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=True
    )


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="these are files without their history")
def test_a_clone_has_what_is_to_be_made(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    clone = documented("git clone REPOSITORY lightrft-ray")
    run([str(ROOT) if word == "REPOSITORY" else word for word in clone], tmp_path)
    for words in of_program("make"):
        assert run([*words, "--dry-run"], tmp_path / "lightrft-ray").stdout, words
    (install,) = of_program(".venv/bin/pre-commit")
    program = str(Path(sys.executable).parent / "pre-commit")
    run([program, *install[1:]], tmp_path / "lightrft-ray")
    assert (tmp_path / "lightrft-ray" / ".git" / "hooks" / "pre-commit").is_file()


# In a process of its own, for pip has a say in how others import distutils.
_PARSE = """
import json, sys
from pip._internal.commands import create_command

_, name, *words = json.loads(sys.argv[1])
options, packages = create_command(name).parse_args(words)
print(json.dumps([options.editables, packages]))
"""


@pytest.mark.parametrize("words", of_program("pip", ".venv/bin/pip"), ids=" ".join)
def test_pip_takes_this_package_with_extras_that_it_has(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    parsed = run([sys.executable, "-c", _PARSE, json.dumps(words)], tmp_path).stdout
    (path,), packages = json.loads(parsed)
    folder, extras = re.fullmatch(r"(.*)\[([\w,]+)\]", path).groups()
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert packages == []


@pytest.mark.parametrize("words", of_program("ray"), ids=" ".join)
def test_ray_takes_these_options(words: tuple[str, ...]) -> None:
    assert ray.dashboard.modules.job.cli  # its commands are a part of Ray's
    command, rest = ray_cli, list(words[1:])
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(click.Context(command), rest)
        assert command is not None, name
    # `ray job stop` is named without the id that it asks for.
    command.make_context(words[-1], rest, resilient_parsing=words[-1] == "stop")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh")
@pytest.mark.parametrize("words", of_program("ssh"), ids=" ".join)
def test_ssh_takes_these_options(words: tuple[str, ...], tmp_path: Path) -> None:
    shown = run(["ssh", "-G", *words[1:]], tmp_path).stdout
    assert "localforward 8700 [localhost]:8700" in shown


@pytest.mark.parametrize(
    "words", [words for words in ALL if words[0].startswith("benchmarks/")], ids=lambda w: w[0]
)
def test_benchmarks_take_these_options(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [words[0], "--help"])
    monkeypatch.setattr(os, "environ", os.environ.copy())  # they set their own variables
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")
    assert ending.value.code == 0
    shown = capsys.readouterr().out
    (row,) = re.findall(rf"{re.escape(words[0])}[^\n]*(?:\n[^\n|`]*)?`?(?:--\w+)?", README)[:1]
    for option in {*words[1:2], *re.findall(r"`(--\w+)", row)}:
        assert option in shown, option


def test_the_tests_to_try_are_there() -> None:
    words = documented("-m pytest tests/unit/config -q")
    listed = run([sys.executable, *words, "--collect-only", f"--rootdir={ROOT}"], ROOT)
    assert "tests/unit/config/test_config_cli.py: " in listed.stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with what the README's commands take to be there."""
    for name in ("launch", "lightrft_ray"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_planned(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = documented("launch/plan.py --config launch/configs/grpo_qwen2_5_vl_7b.yaml")
    assert plan.main(words[1:]) == 0
    shown = capsys.readouterr().out
    # What the README shows of it, but for the rows that it leaves out.
    (excerpt,) = [block for block in blocks("text") if block.startswith("layout")]
    shown_words = " ".join(shown.split())
    for line in excerpt.splitlines():
        for part in " ".join(line.split()).split("…"):
            assert part.strip(" )") in shown_words, line


def test_data_are_looked_at(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "my.yaml").write_text("data: {prompt_data: embedded:digits, max_samples: 12}\n")
    words = documented("launch/check_data.py --config my.yaml --page samples.html")
    assert check_data.main(words[1:]) == 0
    assert "samples: samples.html" in capsys.readouterr().out
    assert (checkout / "samples.html").read_text().count("<img") == 10


def served(words: list[str], folder: Path) -> tuple[int, bytes]:
    """What a viewer of the command, on any port, says of its runs; Ctrl-C ends it."""
    with subprocess.Popen(
        [sys.executable, *words, "--port", "0"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().split()[1])
        connection = http.client.HTTPConnection(url.netloc, timeout=30)
        connection.request("GET", f"/api/runs?{url.query}")
        answer = connection.getresponse().read()
        process.send_signal(signal.SIGINT)
        return process.wait(timeout=30), answer


def test_runs_are_shown(checkout: Path) -> None:
    for name in ("demo", "other"):
        write_run(checkout / "runs" / name, steps=2)
    status, answer = served(documented("launch/view.py runs/demo"), checkout)
    assert status == 0 and b'"name": "demo"' in answer
    words = documented("launch/view.py runs/demo runs/other --port 8700")
    status, answer = served(words, checkout)
    assert status == 0 and b'"name": "other"' in answer
    words = documented("launch/view.py runs/demo --html demo.html")
    assert view.main(words[1:]) == 0
    assert "<title>demo</title>" in (checkout / "demo.html").read_text()


def test_the_row_of_data_is_one(tmp_path: Path) -> None:
    (row,) = blocks("json")
    (tmp_path / "data.jsonl").write_text(row)
    (prompt,), bad = read_prompts(tmp_path / "data.jsonl")
    assert (prompt.reference, prompt.label, len(prompt.images)) == ("3", "count", 1)
    assert not bad


def test_options_of_runs_are_settings() -> None:
    """Of all that the text names, too; integration tests run the commands with fewer steps."""
    found = re.findall(r"launch/ppo_vl\.py((?: (?:\\\n +)?--[\w.]+ \S+)+)", README)
    assert len(found) >= 8
    for words in found:
        options = re.findall(r"--([\w.]+) ([^\s`]+)", words)
        load_config(None, [(name, value) for name, value in options if name != "config"])
