"""Finding reward functions by name, file and module."""

from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.scoring import RewardInputs

_INPUTS = RewardInputs(["p"], ["answer"], ["answer"], ["l"])
_LENGTH = "def reward_func(responses):\n    return [len(each) for each in responses]\n"


def _file(folder: Path, content: str) -> str:
    path = folder / "my_reward.py"
    path.write_text(content)
    return str(path)


def test_a_ready_made_function() -> None:
    assert load_reward("exact_match").score(_INPUTS).values == [1]


def test_a_file(tmp_path: Path) -> None:
    assert load_reward(_file(tmp_path, _LENGTH)).score(_INPUTS).values == [6]


def test_two_files_of_one_name_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = load_reward(_file(tmp_path, _LENGTH))
    second = load_reward(_file(tmp_path / "other", _LENGTH.replace("len(each)", "-1")))
    assert first.score(_INPUTS).values == [6]
    assert second.score(_INPUTS).values == [-1]


def test_a_file_may_define_dataclasses(tmp_path: Path) -> None:
    header = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    body = "@dataclass\nclass Answer:\n    text: str\n"
    assert load_reward(_file(tmp_path, header + body + _LENGTH)).score(_INPUTS).values == [6]


def test_a_module_that_fails_at_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_reward.py").write_text("raise RuntimeError('at import')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"broken_reward\.score: RuntimeError: at import"):
        load_reward("broken_reward.score")


def test_a_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reward_package").mkdir()
    (tmp_path / "reward_package" / "__init__.py").write_text("")
    (tmp_path / "reward_package" / "lengths.py").write_text(_LENGTH)
    monkeypatch.syspath_prepend(tmp_path)
    scorer = load_reward("reward_package.lengths.reward_func")
    assert scorer.score(_INPUTS).values == [6]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("x = 1\n", "it defines no function reward_func"),
        ("reward_func = 3\n", "that is no function"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def reward_func(:\n", "SyntaxError: "),
        ("raise RuntimeError('at import')\n", "RuntimeError: at import"),
        ("def reward_func(answers):\n    return []\n", "no such argument as answers"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(UserError, match=r"^reward\.reward_fn .*my_reward\.py: ") as caught:
        load_reward(_file(tmp_path, content))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere/reward.py", "no such file"),
        ("exactmatch", r"not ready-made \(exact_match, "),
        ("no_such_package.reward", "No module named 'no_such_package'"),
        ("math.no_such_function", "no attribute 'no_such_function'"),
        ("math.pi", "that is no function"),
        (".relative", "not ready-made"),
        ("..relative.name", "not ready-made"),
    ],
)
def test_what_is_wrong_with_a_name(name: str, reason: str) -> None:
    with pytest.raises(UserError, match=rf"^reward\.reward_fn {name}: .*{reason}"):
        load_reward(name)
