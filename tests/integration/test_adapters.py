"""A run that trains adapters alone, from its start to what it leaves for others."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForImageTextToText

from lightrft_ray.data.embedded import resolve_embedded
from tests.integration.launching import ROOT, environment, launch, metrics

pytestmark = pytest.mark.long


def _state(folder: Path | str) -> dict[str, Tensor]:
    return AutoModelForImageTextToText.from_pretrained(folder).state_dict()


def _export(run: Path, output: Path, *words: str) -> dict[str, Tensor]:
    command = [sys.executable, str(ROOT / "launch" / "export.py"), "--checkpoint", str(run)]
    subprocess.run([*command, "--output", str(output), *words], check=True, env=environment())
    return _state(output)


def test_adapters_are_kept_alone_or_merged(tmp_path: Path) -> None:
    run = tmp_path / "run"
    adapters = {"lora_rank": 4, "lora_alpha": 8, "hf_lora": "adapter", "zero_stage": 2}
    result = launch(run, **adapters, save_steps=3, save_hf_ckpt="true")
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(record["rollout/log_prob_gap_max"] < 1e-4 for record in metrics(run)[1:])
    base = resolve_embedded("embedded:tiny-qwen2.5-vl")
    start, trained = _state(base), _state(run / "hf_checkpoint")
    changed = {name for name in start if not torch.equal(start[name], trained[name])}
    assert changed and not any("visual" in name or "embed" in name for name in changed)
    kept = run / "checkpoints" / "step_3" / "hf"
    assert (kept / "adapter_model.safetensors").exists()
    assert not (kept / "model.safetensors").exists()
    of_peft = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(base), kept)
    for state in (_export(run, tmp_path / "merged", "--lora", "merged"), _peft_state(of_peft)):
        assert state.keys() == trained.keys()
        for name, value in trained.items():
            torch.testing.assert_close(state[name], value, atol=1e-6, rtol=0)


def _peft_state(model: PeftModel) -> dict[str, Tensor]:
    """The weights with the adapters merged in by peft itself."""
    return model.merge_and_unload().state_dict()
