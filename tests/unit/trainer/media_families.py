"""Tiny random checkpoints of vision-language families, each with transformers' own processor."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    LlavaProcessor,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.clip import CLIPImageProcessor

_SIDE = 16  # pixels of an image or tile
_PATCH = 8
_PER_TILE = (_SIDE // _PATCH) ** 2
_PINPOINTS = [[_SIDE, 2 * _SIDE], [2 * _SIDE, _SIDE], [2 * _SIDE, 2 * _SIDE]]


@dataclass(frozen=True)
class Family:
    """How a family is built, how its prompts mark media, and whether it sees videos."""

    build: Callable[[PreTrainedTokenizerBase], tuple[PreTrainedModel, ProcessorMixin]]
    image: str = "<image>"
    video: str | None = None


def _text(tokenizer: PreTrainedTokenizerBase) -> dict[str, object]:
    return {
        "vocab_size": len(tokenizer) + 8,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "initializer_range": 0.3,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }


_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": _SIDE,
    "patch_size": _PATCH,
    "initializer_range": 0.3,
}
_PLAIN = {"size": {"shortest_edge": _SIDE}, "crop_size": {"height": _SIDE, "width": _SIDE}}


def _llava(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    processor = LlavaProcessor(
        CLIPImageProcessor(**_PLAIN),
        tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    config = LlavaConfig(
        text_config=LlamaConfig(**_text(tokenizer)),
        vision_config=CLIPVisionConfig(**_VISION),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return LlavaForConditionalGeneration(config), processor


def _llava_next(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    processor = LlavaNextProcessor(
        LlavaNextImageProcessor(**_PLAIN, image_grid_pinpoints=_PINPOINTS),
        tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    config = LlavaNextConfig(
        text_config=LlamaConfig(**_text(tokenizer)),
        vision_config=CLIPVisionConfig(**_VISION),
        image_grid_pinpoints=_PINPOINTS,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return LlavaNextForConditionalGeneration(config), processor


def _onevision(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    size = {"height": _SIDE, "width": _SIDE}
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=_PINPOINTS),
        tokenizer,
        LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=_PER_TILE,
        vision_feature_select_strategy="full",
    )
    config = LlavaOnevisionConfig(
        text_config=LlamaConfig(**_text(tokenizer)),
        vision_config=SiglipVisionConfig(**_VISION),
        image_grid_pinpoints=_PINPOINTS,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
    )
    return LlavaOnevisionForConditionalGeneration(config), processor


def _idefics(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    processor = _idefics_processor(tokenizer)
    config = Idefics3Config(
        text_config=LlamaConfig(**_text(tokenizer)),
        vision_config=_VISION,
        image_token_id=processor.image_token_id,
        scale_factor=2,
    )
    return Idefics3ForConditionalGeneration(config), processor


def _smol(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Its processor makes of images what that of Idefics 3 does, and needs one more package."""
    processor = _idefics_processor(tokenizer)
    config = SmolVLMConfig(
        text_config=LlamaConfig(**_text(tokenizer)),
        vision_config=_VISION,
        image_token_id=processor.image_token_id,
        scale_factor=2,
    )
    return SmolVLMForConditionalGeneration(config), processor


def _idefics_processor(tokenizer: PreTrainedTokenizerBase) -> Idefics3Processor:
    images = Idefics3ImageProcessor(
        size={"longest_edge": 2 * _SIDE}, max_image_size={"longest_edge": _SIDE}
    )
    return Idefics3Processor(images, tokenizer, image_seq_len=1)


def _gemma(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    marks = {"boi_token": "<start>", "eoi_token": "<end>", "image_token": "<image>"}
    tokenizer.add_special_tokens({"additional_special_tokens": list(marks.values())})
    for name, text in marks.items():
        setattr(tokenizer, name, text)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(text))
    size = {"height": _SIDE, "width": _SIDE}
    processor = Gemma3Processor(Gemma3ImageProcessor(size=size), tokenizer, image_seq_length=4)
    config = Gemma3Config(
        text_config={**_text(tokenizer), "head_dim": 16, "layer_types": ["full_attention"] * 2},
        vision_config={**_VISION, "model_type": "siglip_vision_model"},
        image_token_id=tokenizer.image_token_id,
        mm_tokens_per_image=_PER_TILE,
    )
    model = Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)  # 0 if new
    return model, processor


def _qwen3(tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, ProcessorMixin]:
    pixels = {"shortest_edge": 4 * 32 * 32, "longest_edge": 16 * 32 * 32}
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=16, size=pixels),
        tokenizer,
        Qwen3VLVideoProcessor(size=pixels),
    )
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 100.0}
    config = Qwen3VLConfig(
        text_config={**_text(tokenizer), "head_dim": 16, "rope_parameters": rope},
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.3,
        },
        image_token_id=processor.image_token_id,
        video_token_id=processor.video_token_id,
        vision_start_token_id=processor.vision_start_token_id,
        vision_end_token_id=processor.vision_end_token_id,
    )
    return Qwen3VLForConditionalGeneration(config), processor


_QWEN_IMAGE, _QWEN_VIDEO = (
    f"<|vision_start|><|{m}_pad|><|vision_end|>" for m in ("image", "video")
)

FAMILIES = {
    "llava": Family(_llava),
    "llava_next": Family(_llava_next),
    "llava_onevision": Family(_onevision, video="<video>"),
    "gemma3": Family(_gemma, image="<start>"),
    "idefics3": Family(_idefics),
    "smolvlm": Family(_smol),
    "qwen3_vl": Family(_qwen3, _QWEN_IMAGE, _QWEN_VIDEO),
}


def load_family(
    name: str, tokenizer: PreTrainedTokenizerBase
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """The model in evaluation mode, and its processor around a tokenizer of one's own."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>", "<video>"]})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, processor = FAMILIES[name].build(tokenizer)
    return model.eval(), processor
