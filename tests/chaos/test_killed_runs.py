"""Runs that are stopped and go on, on the real stack."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.integration.launching import (
    ROOT,
    assert_all_gone,
    descendants,
    environment,
    launch,
    metrics,
    read_until,
    start,
)

# Every kind of state: a critic, both schedules, an adaptive KL and running reward statistics.
OPTIONS = {
    "num_steps": 4,
    "save_steps": 1,
    "advantage_estimator": "gae",
    "init_kl_coef": 0.05,
    "kl_estimator": "k1",
    "use_kl_loss": "false",
    "kl_target": 0.001,
    "kl_horizon": 100,
    "reward_running_norm": "standardize",
    "lr_scheduler": "cosine",
    "lr_warmup_steps": 2,
    "train_batch_size": 16,
    "eval_sets": "{hot: {data: embedded:digits, max_samples: 8, temperature: 1.0, "
    "n_samples_per_prompt: 2}}",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = launch(folder, **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_a_killed_run_goes_on_bit_for_bit(whole: Path, tmp_path: Path) -> None:
    """Killed without a warning; its newest checkpoint is damaged on top: the one before counts."""
    run = tmp_path / "run"
    process = start(run, **OPTIONS)
    read_until(process, "step 3/4")
    family = descendants(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert_all_gone(family, within=30)
    newest = _newest(run)
    (weights,) = (newest / "policy").glob("mp_rank_*model_states.pt")
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)

    result = launch(run, resume="auto", save_hf_ckpt="true", **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert f"{newest} is not used: policy/{weights.name} is damaged" in said
    assert f"resumed from {newest.with_name(f'step_{_step(newest) - 1}')}" in said
    assert metrics(run) == metrics(whole)
    assert {p.name for p in (run / "checkpoints").iterdir()} >= {"step_2", "step_3", "step_4"}
    _assert_same_policy(run / "checkpoints" / "step_4" / "hf", whole / "hf_checkpoint")


def test_a_checkpoint_is_exported_on_demand(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "launch" / "export.py"), "--checkpoint", str(whole)]
    output = tmp_path / "exported"
    for expected in (0, 2):  # the second time, the folder is not empty
        result = subprocess.run(
            [*command, "--output", str(output)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert result.returncode == expected, result.stderr
    assert f"error: --output {output} is not empty" in result.stderr
    _assert_same_policy(output, whole / "hf_checkpoint")
    assert AutoProcessor.from_pretrained(output).chat_template
    assert "gae" in (output / "README.md").read_text()
    assert (output / "generation_config.json").exists()


def test_a_run_of_another_model_is_refused_before_anything_starts(
    whole: Path, tmp_path: Path
) -> None:
    result = launch(tmp_path / "run", resume=whole, **OPTIONS | {"actor_learning_rate": 1e-5})
    assert result.returncode == 2, result.stdout + result.stderr
    assert "actor_learning_rate 0.0005 → 1e-05" in result.stderr
    assert not (tmp_path / "run").exists()


def _assert_same_policy(folder: Path, other: Path) -> None:
    load = AutoModelForImageTextToText.from_pretrained
    ours, theirs = load(folder).state_dict(), load(other).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def _newest(run: Path) -> Path:
    found = [p for p in (run / "checkpoints").glob("step_*") if (p / "manifest.json").exists()]
    return max(found, key=_step)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))
