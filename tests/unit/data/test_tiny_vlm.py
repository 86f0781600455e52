"""The tiny checkpoint loads like a published one and starts from the documented ability."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, ProcessorMixin

from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl
from lightrft_ray.data.warm_start import warm_start

CHAT: list[dict] = [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "é 漢\n x"}]}
]


@pytest.fixture(scope="module")
def processor(tiny_vlm: Path) -> ProcessorMixin:
    return AutoProcessor.from_pretrained(tiny_vlm)


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_the_auto_classes_load_the_folder(tiny_vlm: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert model.dtype == torch.float32
    assert 0.8e6 < parameters < 1.0e6
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_tokens_are_bytes_and_text_survives(processor: ProcessorMixin) -> None:
    text = processor.apply_chat_template(CHAT, add_generation_prompt=True)
    ids = processor.tokenizer(text)["input_ids"]
    assert processor.tokenizer.decode(ids) == text
    assert ids.count(processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")) == 1
    assert len(ids) == len("<user\n<<<" + ">\n<assistant\n") + len("é 漢\n x".encode())
    assert all(len(processor.tokenizer.encode(str(digit))) == 1 for digit in range(10))
    assert processor.tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize(
    ("size", "image_tokens"), [((56, 56), 4), ((10, 10), 4), ((3000, 3000), 64), ((2000, 1000), 55)]
)
def test_image_sizes_are_bounded(
    processor: ProcessorMixin, size: tuple[int, int], image_tokens: int
) -> None:
    text = processor.apply_chat_template(CHAT, add_generation_prompt=True)
    inputs = processor(text=[text], images=[Image.new("RGB", size)], return_tensors="pt")
    assert inputs["mm_token_type_ids"].sum() == image_tokens
    assert inputs["pixel_values"].shape == (4 * image_tokens, 3 * 2 * 14 * 14)


def test_building_twice_gives_the_same_bytes_and_leaves_the_random_state(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build_tiny_qwen_vl(tmp_path / "a")
    assert torch.equal(torch.rand(3), expected)
    build_tiny_qwen_vl(tmp_path / "b")
    build_tiny_qwen_vl(tmp_path / "c", seed=1)
    assert _digest(tmp_path / "a") == _digest(tmp_path / "b") != _digest(tmp_path / "c")


def test_the_warm_start_is_deterministic(tmp_path: Path, digits: TaskFiles) -> None:
    build_tiny_qwen_vl(tmp_path / "a")
    start = _digest(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    threads = torch.get_num_threads()
    for name in ("a", "b"):
        warm_start(tmp_path / name, digits, steps=3)
    assert start != _digest(tmp_path / "a") == _digest(tmp_path / "b")
    assert torch.get_num_threads() == threads


def test_the_warm_policy_leaves_room_to_learn(
    tiny_vlm: Path, digits: TaskFiles, processor: ProcessorMixin
) -> None:
    """Held-out accuracy: greedy at most 0.40, sampled (its expectation) 0.15 to 0.35."""
    rows = [json.loads(line) for line in digits.eval_file.read_text().splitlines()]
    text = processor.apply_chat_template(rows[0]["prompt"], add_generation_prompt=True)
    images = [Image.open(digits.folder / row["images"][0]) for row in rows]
    inputs = processor(text=[text] * len(rows), images=images, return_tensors="pt")
    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm)
    with torch.no_grad():
        answers = model(**inputs, logits_to_keep=1).logits[:, -1].softmax(-1)
    right = torch.tensor([processor.tokenizer.encode(row["reference"])[0] for row in rows])
    greedy = (answers.argmax(-1) == right).float().mean().item()
    sampled = answers.gather(1, right[:, None]).mean().item()
    assert 0.2 < greedy <= 0.40
    assert 0.15 <= sampled <= 0.35
    digit_ids = [processor.tokenizer.encode(str(digit))[0] for digit in range(10)]
    assert answers[:, digit_ids].sum(-1).mean() > 0.9
