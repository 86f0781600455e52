"""Tiny random checkpoints of the vision-language families, processors included."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from families.processors import (
    gemma_processor,
    idefics_processor,
    internvl_processor,
    llava_processor,
    qwen_processor,
)
from families.text import SIZES, seeded
from families.tokens import byte_tokenizer
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    PreTrainedModel,
    ProcessorMixin,
    Qwen2_5_VLProcessor,
    Qwen2Tokenizer,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

_QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
    "initializer_range": 0.15,
    "vision_use_head": False,
}


@dataclass(frozen=True)
class _Recipe:
    """`config` and `processor` get the tokenizer's ids by token, and the tokenizer."""

    tokenizer: Callable[[], Qwen2Tokenizer]
    config: Callable[[dict[str, int]], dict[str, object]]
    processor: Callable[[Qwen2Tokenizer], ProcessorMixin]


def _qwen_tokenizer() -> Qwen2Tokenizer:
    return byte_tokenizer(_QWEN_TOKENS, image=_QWEN_IMAGE)


def _qwen_ids(ids: dict[str, int]) -> dict[str, object]:
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def _qwen_text(**rope: object) -> dict[str, object]:
    rope = {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0, **rope}
    return {**SIZES, "rope_parameters": rope}


def _qwen2_vl(ids: dict[str, int]) -> dict[str, object]:
    vision = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2}
    vision |= {"initializer_range": 0.15}
    return {"text_config": _qwen_text(), "vision_config": vision, **_qwen_ids(ids)}


def _qwen2_5_vl(ids: dict[str, int]) -> dict[str, object]:
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": 64,
        "window_size": 56,
        "fullatt_block_indexes": [1],
        "initializer_range": 0.15,
    }
    text = {"text_config": _qwen_text(), "tie_word_embeddings": True}
    return {**text, "vision_config": vision, **_qwen_ids(ids)}


def _qwen3_vl(ids: dict[str, int]) -> dict[str, object]:
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": 64,
        "patch_size": 14,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "initializer_range": 0.15,
    }
    text = _qwen_text(mrope_interleaved=True)
    return {"text_config": text, "vision_config": vision, **_qwen_ids(ids)}


def _llava_onevision(ids: dict[str, int]) -> dict[str, object]:
    return {
        "text_config": {**SIZES, "model_type": "qwen2"},
        "vision_config": {**_SIGLIP, "image_size": 28},
        "image_token_index": ids["<image>"],
        "video_token_index": ids["<video>"],
        "image_grid_pinpoints": [[28, 28], [28, 56], [56, 28], [56, 56]],
    }


def _gemma3(ids: dict[str, int]) -> dict[str, object]:
    text = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
    return {
        "text_config": {**SIZES, **text, "query_pre_attn_scalar": 32},
        "vision_config": _SIGLIP,
        "mm_tokens_per_image": 4,
        "boi_token_index": ids["<start_of_image>"],
        "eoi_token_index": ids["<end_of_image>"],
        "image_token_index": ids["<image_soft_token>"],
    }


def _idefics3(ids: dict[str, int]) -> dict[str, object]:
    vision = {**_SIGLIP, "model_type": "idefics3_vision"}
    return {
        "text_config": {**SIZES, "model_type": "llama"},
        "vision_config": vision,
        "image_token_id": ids["<image>"],
        "scale_factor": 2,
        "pad_token_id": ids["<|endoftext|>"],
    }


def _internvl(ids: dict[str, int]) -> dict[str, object]:
    vision = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": [56, 56],
        "patch_size": [14, 14],
        "initializer_range": 0.15,
        "layer_scale_init_value": 1.0,
    }
    return {
        "text_config": {**SIZES, "model_type": "qwen2"},
        "vision_config": vision,
        "image_token_id": ids["<IMG_CONTEXT>"],
        "image_seq_length": 4,
        "tie_word_embeddings": False,
    }


_RECIPES = {
    "qwen2_vl": _Recipe(
        _qwen_tokenizer, _qwen2_vl, qwen_processor(Qwen2VLProcessor, Qwen2VLVideoProcessor)
    ),
    "qwen2_5_vl": _Recipe(
        _qwen_tokenizer, _qwen2_5_vl, qwen_processor(Qwen2_5_VLProcessor, Qwen2VLVideoProcessor)
    ),
    "qwen3_vl": _Recipe(
        _qwen_tokenizer,
        _qwen3_vl,
        qwen_processor(Qwen3VLProcessor, Qwen3VLVideoProcessor, patch_size=14),
    ),
    "llava_onevision": _Recipe(
        lambda: byte_tokenizer(("<image>", "<video>"), image="<image>"),
        _llava_onevision,
        llava_processor,
    ),
    "gemma3": _Recipe(
        lambda: byte_tokenizer(
            ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
            {
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
            image="<start_of_image>",
            plain=["\n", "\n\n", "\n\n\n", "\n\n\n\n"],  # which vLLM joins around an image
        ),
        _gemma3,
        gemma_processor,
    ),
    "idefics3": _Recipe(
        lambda: byte_tokenizer(
            (
                "<image>",
                "<fake_token_around_image>",
                "<end_of_utterance>",
                "<global-img>",
                *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
            ),
            image="<image>",
        ),
        _idefics3,
        idefics_processor,
    ),
    "internvl": _Recipe(
        lambda: byte_tokenizer(
            ("<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
            {
                "start_image_token": "<img>",
                "end_image_token": "</img>",
                "context_image_token": "<IMG_CONTEXT>",
                "video_token": "<video>",
            },
            image="<IMG_CONTEXT>",
        ),
        _internvl,
        internvl_processor,
    ),
}
VISION_FAMILIES = tuple(_RECIPES)


def build_vision(family: str, folder: Path) -> PreTrainedModel:
    """Write a checkpoint with its processor into `folder`; returns the model, in float32."""
    recipe = _RECIPES[family]
    tokenizer = recipe.tokenizer()
    fields = recipe.config(tokenizer.get_vocab())
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    fields["text_config"] = {**fields["text_config"], **special}  # type: ignore[dict-item]
    config = AutoConfig.for_model(family, **fields)
    model = seeded(lambda: AutoModelForImageTextToText.from_config(config))
    for name, value in special.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    _name_as_published(folder / "model.safetensors")
    recipe.processor(tokenizer).save_pretrained(folder)
    return model


def _name_as_published(file: Path) -> None:
    """Published SigLIP towers lie one level deeper than transformers saves those it made itself."""
    weights = {
        name.replace("vision_tower.", "vision_tower.vision_model."): weight
        for name, weight in load_file(file).items()
    }
    if any("vision_model.encoder.layers.0.self_attn.q_proj" in name for name in weights):
        save_file(weights, file, metadata={"format": "pt"})
