"""The command line of launch/plan.py."""

from pathlib import Path

import pytest

from launch.plan import main

CONFIGS = Path(__file__).parents[3] / "launch" / "configs"
CONFIG = ("--config", str(CONFIGS / "grpo_qwen2_5_vl_7b.yaml"))


def test_a_run_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CONFIG, "--gpus_per_node", "4", "--num_steps", "5"]) == 0
    assert "8 GPUs on 2 nodes of 4" in capsys.readouterr().out


def test_a_run_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CONFIG, "--gpu_gb=24"]) == 1
    assert "problem: the learner needs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num_step", "5"], "did you mean --trainer.num_steps?"),
        (["--vllm_tensor_parallel_size", "3"], "does not divide the 28 attention heads"),
        (["--gpu_gb", "0"], "0 is not above 0"),
        (["--prompt_tokens", "-1"], "-1 is not 1 or more"),
    ],
)
def test_mistakes(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main([*CONFIG, *words])
    assert ending.value.code == 2
    assert said in capsys.readouterr().err


def test_help_has_the_machines_and_all_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["--help"])
    assert ending.value.code == 0
    text = capsys.readouterr().out
    assert "--gpus_per_node" in text
    assert "--rollout.temperature" in text
