"""A run that overwrites its output folder and would lose its own input with it."""

from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.load import load_config

INPUTS = {
    "model.pretrain": [],
    "model.ref_pretrain": [("init_kl_coef", "0.1")],
    "model.critic_pretrain": [("advantage_estimator", "gae")],
    "data.prompt_data": [],
    "data.eval_data": [],
}


def _load(output_dir: Path | str, *overrides: tuple[str, str]) -> RunConfig:
    given = [("output_dir", str(output_dir)), ("overwrite_output", "true"), *overrides]
    return load_config(None, given)


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_in_the_output_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run" / "input"
    with pytest.raises(UserError) as caught:
        _load(tmp_path / "run", (name, str(path)), *INPUTS[name])
    message = str(caught.value)
    assert "\n" not in message
    assert f"{name} {path}" in message and f"output_dir {tmp_path / 'run'}" in message
    assert "overwrite_output" in message
    _load(tmp_path / "other", (name, str(path)), *INPUTS[name])
    _load(tmp_path / "run", (name, str(path)), *INPUTS[name], ("overwrite_output", "false"))


@pytest.mark.parametrize(
    ("output_dir", "path"),
    [
        ("runs/a", "runs/a"),
        ("runs/a", "runs/a/hf_checkpoint"),
        ("runs/a", "./runs/b/../a/hf_checkpoint"),
        ("runs/a/", "link/hf_checkpoint"),
        ("link", "runs/a/hf_checkpoint"),
        (".", "runs/a"),
        (".", "./model"),
    ],
)
def test_paths_are_compared_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output_dir: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/a").mkdir(parents=True)
    Path("link").symlink_to("runs/a")
    with pytest.raises(UserError, match="would delete the run's own input"):
        _load(output_dir, ("pretrain", path))


@pytest.mark.parametrize(
    ("output_dir", "path"),
    [
        ("runs/a", "runs/ab"),
        ("runs/a", "runs"),
        ("runs/a", "Qwen/Qwen2.5-VL-3B-Instruct"),
        (".", "Qwen/Qwen2.5-VL-3B-Instruct"),
        (".", "embedded:tiny-qwen2.5-vl"),
        (".", "../model"),
    ],
)
def test_inputs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output_dir: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _load(output_dir, ("pretrain", path)).model.pretrain == path


def test_a_loop_of_links_is_no_crash(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert _load(loop).output_dir == str(loop)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ([("reward_fn", "RUN/mine.py")], "reward.reward_fn"),
        (
            [
                ("recipes", "{default: {a: 1}}"),
                ("functions", "{a: {function: RUN/mine.py}}"),
            ],
            "reward.functions.a",
        ),
        (
            [("recipes", "{default: {a: 1}}"), ("models", "{a: {pretrain: RUN/model}}")],
            "reward.models.a",
        ),
    ],
)
def test_rewards_in_the_output_folder(
    tmp_path: Path, settings: list[tuple[str, str]], name: str
) -> None:
    run = tmp_path / "run"
    given = [(setting, text.replace("RUN", str(run))) for setting, text in settings]
    with pytest.raises(UserError, match=f"the run's own input: {name} "):
        _load(run, *given)
    _load(tmp_path / "other", *given)
