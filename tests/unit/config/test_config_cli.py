"""The command line: forms of options, help, and mistakes that end with status 2 and one line."""

import re
from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.cli import exit_with_error, parse_command_line
from lightrft_ray.config.settings import all_settings, sections


def _parse(*argv: str) -> RunConfig:
    return parse_command_line(argv, "train.py", "Train a model.")


def _error_line(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as caught:
        _parse(*argv)
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("error: ")
    return output.err


@pytest.mark.parametrize(
    "argv",
    [
        ("--rollout.temperature", "0.9", "--seed", "2"),
        ("--temperature", "0.9"),
        ("--rollout.temperature=0.9",),
        ("--temperature=0.9",),
        ("--temperature=0.1", "--rollout.temperature", "0.9"),
    ],
)
def test_forms_of_an_option(argv: tuple[str, ...]) -> None:
    assert _parse(*argv).rollout.temperature == 0.9


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--overwrite_output",), True),
        (("--overwrite_output", "--seed", "3"), True),
        (("--overwrite_output", "true"), True),
        (("--overwrite_output=false",), False),
    ],
)
def test_a_switch_alone_means_true(argv: tuple[str, ...], expected: bool) -> None:
    assert _parse(*argv).overwrite_output is expected


def test_a_switch_that_may_be_null_stands_alone_too() -> None:
    assert _parse("--whiten_advantages").algorithm.whiten_advantages is True


def test_values_that_look_like_options_follow_an_equals_sign() -> None:
    assert _parse("--system_prompt=--x=y").data.system_prompt == "--x=y"


def test_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("seed: 3\nrollout: {temperature: 0.5}\n")
    config = _parse("--temperature", "0.9", "--config", str(path))
    assert (config.seed, config.rollout.temperature) == (3, 0.9)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (("--n-samples-per-prompt", "4"), "did you mean --rollout.n_samples_per_prompt?"),
        (("--n-samples-per-prompt",), "did you mean --rollout.n_samples_per_prompt?"),
        (("--temperature",), "--temperature needs a value"),
        (("--temperature", "--seed", "1"), "--temperature needs a value"),
        (("--seed", "-1"), "got -1"),
        (("--top_p", "0.9"), "rollout.top_p: truncated sampling is not supported"),
        (("--top_k",), "rollout.top_k: truncated sampling is not supported"),
        (("--config",), "--config needs a value"),
        (("--config", "a", "--config=b"), "--config comes twice"),
        (("--config", "/no/such.yaml"), "/no/such.yaml"),
        (("train",), "unexpected argument 'train'"),
        (("-s", "1"), "unexpected argument '-s'"),
        (("--",), "unexpected argument '--'"),
        (("--=1",), "unexpected argument '--=1'"),
        (("--seed", "1", "2"), "unexpected argument '2'"),
        (("--seed", "one\ntwo"), "one two"),
        (("--n_samples_per_prompt", "1"), "algorithm.advantage_estimator to gae"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], part: str) -> None:
    assert part in _error_line(capsys, *argv)


def test_exit_with_error_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        exit_with_error(UserError("first\n  second"))
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: first second\n"


@pytest.mark.parametrize("argv", [("--help",), ("-h",), ("--no_such", "1", "--help")])
def test_help_lists_every_setting_by_section(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as caught:
        _parse(*argv)
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage: train.py ")
    assert "Train a model." in lines
    assert max(map(len, lines)) <= 100
    options = [line.split()[0] for line in lines if re.match(r"  --[a-z]", line)]
    assert options == ["--config", "--help"] + [f"--{one.key}" for one in all_settings()]
    for section in sections():
        assert sum(line.startswith(f"{section}: ") for line in lines) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "  --rollout.n_samples_per_prompt int (default: 8)\n      Samples of one prompt.",
        "  --model.dtype float32|bfloat16 (default: float32)\n",
        " A\n      function may take prompts, responses, references, labels,",
        "  --data.max_samples int|null (default: null)\n",
        "  --trainer.adam_betas [float, float] (default: [0.9, 0.95])\n",
        "  --trainer.zero_stage 0|1|2|3 (default: 1)\n",
        "  --algorithm.whiten_advantages true|false|null (default: null)\n",
        "--algorithm.advantage_estimator gae|reinforce|reinforce_plus_plus|reinforce_baseline|"
        "rloo|\n      group_norm|dr_grpo|cpgd (default: group_norm)\n",
    ],
)
def test_help_shows_type_and_default(capsys: pytest.CaptureFixture[str], lines: str) -> None:
    with pytest.raises(SystemExit):
        _parse("--help")
    assert lines in capsys.readouterr().out
