"""The command line of launch/ppo_text.py, as far as it goes before a run."""

import pytest

from launch import ppo_text
from lightrft_ray.config import RunConfig


def _given(monkeypatch: pytest.MonkeyPatch, *argv: str) -> RunConfig:
    taken: list[RunConfig] = []

    def take(config: RunConfig, checks: object) -> int:
        taken.append(config)
        return 0

    monkeypatch.setattr(ppo_text, "train_or_evaluate", take)
    assert ppo_text.main(argv) == 0
    return taken[0]


def test_alone_it_is_the_embedded_default(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _given(monkeypatch, "--num_steps", "5")
    assert config.model.pretrain == "embedded:tiny-qwen2.5"
    assert config.data.prompt_data == "embedded:arithmetic"
    assert config.trainer.num_steps == 5


def test_a_model_that_sees_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        ppo_text.main(["--pretrain", "embedded:tiny-qwen2.5-vl"])
    assert ending.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sees images: train it by launch/ppo_vl.py" in line
