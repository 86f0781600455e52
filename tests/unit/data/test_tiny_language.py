"""The tiny language model loads like a published one, and its build can be repeated."""

import hashlib
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM

from lightrft_ray.data.embedded import embedded_config, resolve_embedded
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.data.task_warm_start import warm_start_on_tasks
from lightrft_ray.data.tiny_language import build_tiny_qwen


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_the_auto_classes_load_the_folder(tmp_path: Path) -> None:
    build_tiny_qwen(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(model, Qwen2ForCausalLM)
    assert model.dtype == torch.float32
    assert 0.5e6 < sum(parameter.numel() for parameter in model.parameters()) < 0.8e6
    assert model.config.to_dict().items() >= {"tie_word_embeddings": True}.items()
    planned = embedded_config("embedded:tiny-qwen2.5")
    assert planned.vocab_size == model.config.vocab_size
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "é?"}], add_generation_prompt=True, tokenize=False
    )
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert text.endswith("<|im_start|>assistant\n")


def test_the_warm_start_is_deterministic(tmp_path: Path) -> None:
    task = TaskFiles(resolve_embedded("embedded:arithmetic"))
    for name in ("a", "b"):
        build_tiny_qwen(tmp_path / name)
        start = _digest(tmp_path / name)
        warm_start_on_tasks(tmp_path / name, [task], Qwen2ForCausalLM, steps=2)
    assert start != _digest(tmp_path / "a") == _digest(tmp_path / "b")
