"""The README's snippet of reward models and judges, on tiny checkpoints."""

from pathlib import Path

import pytest
import torch
from readme import blocks
from tiny_models import text_model
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen2ForSequenceClassification

from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl


def test_rewards_and_verdicts_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = [text for text in blocks("python") if "GenerativeJudge(" in text]
    monkeypatch.chdir(tmp_path)
    config = text_model().config
    config.num_labels = 1
    Qwen2ForSequenceClassification(config).save_pretrained("path/to/reward-model")
    build_tiny_qwen_vl(tmp_path / "judge")
    given = {
        "model": AutoModelForImageTextToText.from_pretrained("judge"),
        "processor": AutoProcessor.from_pretrained("judge"),
        "sequences": torch.randint(1, 20, (3, 5)),
        "attention_mask": torch.ones(3, 5, dtype=torch.long),
    }
    exec(compile(snippet, "README.md", "exec"), given)
    assert given["scores"].shape == (3,) and given["scores"].dtype == torch.float32
    (verdict,) = given["verdicts"]
    assert verdict.fault is not None or 0 <= verdict.score <= 10
