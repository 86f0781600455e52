"""Encoding a prompt: ids for the generator and for the trainer agree, and faults are named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoTokenizer, LlamaConfig

from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.media import load_images
from lightrft_ray.data.processing import (
    Processor,
    PromptEncoder,
    load_processor,
    pixel_limits,
    tokenizer_of,
)
from lightrft_ray.data.prompts import Prompt, read_prompts
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.data.video import Video
from lightrft_ray.models.families import forbidden_token_ids

IMAGE = {"type": "image"}


def _prompt(*content: dict, images: tuple[str, ...] = ()) -> Prompt:
    return Prompt("p", ({"role": "user", "content": list(content)},), images, Path(), "", "")


def _text(text: str) -> dict:
    return {"type": "text", "text": text}


@pytest.fixture(scope="module")
def processor(tiny_vlm: Path) -> Processor:
    return load_processor(tiny_vlm)


@pytest.fixture(scope="module")
def encoder(processor: Processor) -> PromptEncoder:
    return PromptEncoder(processor, system_prompt=None, prompt_max_len=128)


def test_a_digit_prompt(processor: Processor, encoder: PromptEncoder, digits: TaskFiles) -> None:
    prompt = read_prompts(digits.eval_file)[0][0]
    encoded = encoder.encode(prompt, load_images(prompt))
    assert tokenizer_of(processor).decode(encoded.token_ids) == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Which digit?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert (encoded.id, len(encoded.token_ids)) == (prompt.id, 34)
    assert {name: (tuple(each.shape), each.dtype) for name, each in encoded.mm_inputs.items()} == {
        "pixel_values": ((16, 1176), torch.float32),
        "image_grid_thw": ((1, 3), torch.int64),
        "mm_token_type_ids": ((37,), torch.int64),
    }


def test_each_placeholder_expands_to_its_images_tokens(
    processor: Processor, encoder: PromptEncoder
) -> None:
    """Two images of different size: expanding the generator's ids by hand gives the trainer's."""
    images = [Image.new("RGB", (56, 56)), Image.new("RGB", (84, 112))]
    prompt = _prompt(IMAGE, _text("or"), IMAGE, images=("a.png", "b.png"))
    encoded = encoder.encode(prompt, images)
    pad = tokenizer_of(processor).convert_tokens_to_ids("<|image_pad|>")
    counts = iter([2 * 2, 3 * 4])
    by_hand = [
        each
        for token in encoded.token_ids
        for each in [token] * (next(counts) if token == pad else 1)
    ]
    assert encoded.expanded_ids.tolist() == by_hand
    assert torch.equal(encoded.mm_inputs["mm_token_type_ids"], (encoded.expanded_ids == pad).long())
    assert encoded.mm_inputs["image_grid_thw"].tolist() == [[1, 4, 4], [1, 8, 6]]


def test_pixels_are_the_normalised_image(processor: Processor, encoder: PromptEncoder) -> None:
    """White, in the units of CLIP's normalisation."""
    prompt = _prompt(IMAGE, _text("q"), images=("a.png",))
    pixels = encoder.encode(prompt, [Image.new("RGB", (56, 56), "white")]).mm_inputs["pixel_values"]
    mean, deviation = (
        torch.tensor([0.48145466, 0.4578275, 0.40821073]),
        torch.tensor([0.26862954, 0.26130258, 0.27577711]),
    )
    channels = pixels.unflatten(1, (3, 2 * 14 * 14)).mean((0, 2))
    torch.testing.assert_close(channels, (1 - mean) / deviation, rtol=1e-5, atol=1e-5)


def test_a_text_prompt_has_no_media(encoder: PromptEncoder) -> None:
    encoded = encoder.encode(_prompt(_text("hi")), [])
    assert encoded.mm_inputs == {}
    assert encoded.expanded_ids.dtype == torch.int64
    assert encoded.expanded_ids.tolist() == encoded.token_ids


def test_the_generators_ids_alone_are_the_same(encoder: PromptEncoder) -> None:
    prompt = _prompt(IMAGE, _text("q"), images=("a.png",))
    encoded = encoder.encode(prompt, [Image.new("RGB", (56, 56))])
    assert encoder.token_ids(prompt) == encoded.token_ids


def test_a_system_prompt_leads_prompts_without_their_own(processor: Processor) -> None:
    encoder = PromptEncoder(processor, system_prompt="Be brief.", prompt_max_len=128)
    prompt = _prompt(_text("hi"))
    own = replace(prompt, messages=({"role": "system", "content": "Sing."}, *prompt.messages))
    rendered = [tokenizer_of(processor).decode(encoder.token_ids(each)) for each in (prompt, own)]
    assert rendered[0].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi")
    assert rendered[1].startswith("<|im_start|>system\nSing.<|im_end|>\n<|im_start|>user\nhi")


def test_sampled_tokens_decode_without_the_end_of_the_turn(
    processor: Processor, encoder: PromptEncoder
) -> None:
    tokenizer = tokenizer_of(processor)
    ids = [*tokenizer("7 é")["input_ids"], tokenizer.eos_token_id]
    assert encoder.decode(ids) == "7 é"


def test_a_long_prompt_is_a_fault_that_counts_image_tokens(processor: Processor) -> None:
    prompt = _prompt(IMAGE, _text("Which digit?"), images=("a.png",))
    images = [Image.new("RGB", (56, 56))]
    assert len(PromptEncoder(processor, None, 37).encode(prompt, images).expanded_ids) == 37
    with pytest.raises(DataFault, match=r"prompt p: 37 tokens, over data\.prompt_max_len 36"):
        PromptEncoder(processor, None, 36).encode(prompt, images)


@pytest.mark.parametrize(
    ("text", "images", "counts"),
    [
        ("look: <|image_pad|>", (), r"1 image placeholder\(s\) for 0 image\(s\)"),
        ("look: <|image_pad|>", ("a.png",), r"2 image placeholder\(s\) for 1 image\(s\)"),
        ("look: <|video_pad|>", (), r"1 video placeholder\(s\) for 0 video\(s\)"),
    ],
)
def test_a_text_that_spells_a_placeholder_is_a_fault(
    encoder: PromptEncoder, text: str, images: tuple[str, ...], counts: str
) -> None:
    prompt = _prompt(*([IMAGE] * len(images)), _text(text), images=images)
    with pytest.raises(DataFault, match=f"prompt p: {counts}"):
        encoder.encode(prompt, [Image.new("RGB", (56, 56))] * len(images))


def test_forgotten_images_are_a_fault_and_not_a_text_prompt(encoder: PromptEncoder) -> None:
    with pytest.raises(DataFault, match="1 image placeholder"):
        encoder.encode(_prompt(IMAGE, _text("q"), images=("a.png",)), [])


def test_an_image_the_processor_refuses_is_a_fault(encoder: PromptEncoder) -> None:
    prompt = _prompt(IMAGE, _text("q"), images=("a.png",))
    with pytest.raises(DataFault, match=r"prompt p: refused by the processor: .*aspect ratio"):
        encoder.encode(prompt, [Image.new("RGB", (3000, 10))])


def test_a_chat_template_can_refuse_a_prompt(tiny_vlm: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_vlm)
    tokenizer.chat_template = "{{ raise_exception('only poems') }}"
    with pytest.raises(DataFault, match="prompt p: refused by the chat template: only poems"):
        PromptEncoder(tokenizer, None, 128).encode(_prompt(_text("hi")), [])


def test_a_tokenizer_alone_encodes_text_and_refuses_images(tiny_vlm: Path) -> None:
    encoder = PromptEncoder(AutoTokenizer.from_pretrained(tiny_vlm), None, 128)
    text = _prompt(_text("a"), _text("b"))
    joined = replace(text, messages=({"role": "user", "content": "ab"},))
    assert encoder.encode(text, []).token_ids == encoder.encode(joined, []).token_ids
    with pytest.raises(UserError, match="prompt p has images and the model's processor takes none"):
        encoder.encode(_prompt(IMAGE, _text("q"), images=("a",)), [Image.new("RGB", (56, 56))])


def test_a_model_without_chat_template_is_refused(tiny_vlm: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_vlm)
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        PromptEncoder(tokenizer, None, 128)


@pytest.mark.parametrize(
    ("name", "reason"), [("nothing", "there is no such folder"), (".", "no processor")]
)
def test_a_folder_without_processor_is_named(tmp_path: Path, name: str, reason: str) -> None:
    folder = tmp_path / name
    with pytest.raises(UserError) as caught:
        load_processor(folder)
    assert str(caught.value).startswith(f"model '{folder}': {reason}")


def test_placeholders_are_forbidden_and_nothing_else(tiny_vlm: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_vlm)
    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    expected = tuple(sorted(tokenizer.convert_tokens_to_ids(names)))
    assert forbidden_token_ids(AutoConfig.from_pretrained(tiny_vlm)) == expected
    assert forbidden_token_ids(LlamaConfig()) == ()


@pytest.mark.parametrize("limit", [56 * 56, 112 * 112])
def test_limits_of_pixels_are_the_processors_own_arguments(
    processor: Processor, limit: int
) -> None:
    """An image that is larger is scaled down to them, and the number of its tokens follows."""
    settings = MediaConfig(image_min_pixels=56 * 56, image_max_pixels=limit)
    arguments = pixel_limits(processor, settings)
    assert arguments == {
        "images_kwargs": {"size": {"shortest_edge": 56 * 56, "longest_edge": limit}}
    }
    text = "<|vision_start|><|image_pad|><|vision_end|>"
    image = Image.new("RGB", (200, 200))
    inputs = processor(text=[text], images=[image], return_tensors="pt", **arguments)
    assert len(inputs["pixel_values"]) == limit // (14 * 14)


def test_without_limits_the_processor_is_told_nothing(processor: Processor) -> None:
    assert pixel_limits(processor, MediaConfig()) == {}


def test_limits_that_cannot_be_honoured_are_an_error(processor: Processor) -> None:
    with pytest.raises(UserError, match=r"media\.image_max_pixels: with the processor's own"):
        pixel_limits(processor, MediaConfig(image_max_pixels=28 * 28))
    with pytest.raises(UserError, match=r"media\.video_min_pixels: a .* has no limits in pixels"):
        pixel_limits(tokenizer_of(processor), MediaConfig(video_min_pixels=5))
    with pytest.raises(ValueError, match=r"media\.image_min_pixels 9 is above media\.image_max"):
        MediaConfig(image_min_pixels=9, image_max_pixels=8)


def test_a_video_takes_its_placeholder_and_its_seconds(encoder: PromptEncoder) -> None:
    frames = np.zeros((4, 56, 56, 3), dtype=np.uint8)
    video = Video(frames, indices=(0, 3, 6, 9), frame_count=12, fps=6.0)
    prompt = replace(_prompt({"type": "video"}, _text("How many?")), videos=("v.mp4",))
    encoded = encoder.encode(prompt, [], [video])
    assert encoded.mm_inputs["video_grid_thw"].tolist() == [[2, 4, 4]]
    assert (encoded.mm_inputs["mm_token_type_ids"] == 2).sum() == 2 * 4
    # Two frames a step, four frames in two seconds.
    assert torch.as_tensor(encoded.mm_inputs["second_per_grid_ts"]).tolist() == [1.0]
    with pytest.raises(DataFault, match=r"1 video placeholder\(s\) for 0 video\(s\)"):
        encoder.encode(prompt, [], [])
