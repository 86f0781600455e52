"""A tiny Qwen2.5-VL checkpoint, built rather than downloaded.

It has the architecture, the processor and the file layout of the published checkpoints and about
0.9M parameters, so that transformers, vLLM and DeepSpeed run it on a CPU through the very code they
run the large ones with. Its tokens are bytes: a digit is one token.
"""

from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
_SPECIAL_TOKENS = (
    END_OF_TEXT,
    START_OF_TURN,
    END_OF_TURN,
    VISION_START,
    VISION_END,
    IMAGE_PAD,
    VIDEO_PAD,
)

MIN_PIXELS = 56 * 56
MAX_PIXELS = 224 * 224  # at most 64 tokens an image
CONTEXT_LENGTH = 2048
_HIDDEN_SIZE = 128
_VOCABULARY_MULTIPLE = 64  # divides evenly over tensor-parallel ranks, as real vocabularies do

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tiny_qwen_vl(folder: Path, seed: int = 0) -> None:
    """Write a randomly initialised float32 checkpoint with its processor into `folder`.

    The same seed gives the same bytes; the caller's random state is left as it was.
    """
    tokenizer = byte_tokenizer()
    write_random(folder, Qwen2_5_VLForConditionalGeneration, _config(tokenizer), tokenizer, seed)
    _processor(tokenizer).save_pretrained(folder)


def write_random(
    folder: Path,
    architecture: type[PreTrainedModel],
    config: PretrainedConfig,
    tokenizer: Qwen2Tokenizer,
    seed: int,
) -> None:
    """Write a model with the weights of a seed, which stops where the tokenizer's turns end."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = architecture(config)
    assert model.generation_config is not None
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)


def tiny_qwen_vl_config() -> Qwen2_5_VLConfig:
    """The configuration that the checkpoint has, without building it."""
    return _config(byte_tokenizer())


def byte_tokenizer() -> Qwen2Tokenizer:
    """A byte-level BPE tokenizer without merges: 256 byte tokens, then the special tokens."""
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(
        vocab={byte: index for index, byte in enumerate(alphabet)},
        merges=[],
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT_LENGTH,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIAL_TOKENS)})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def vocabulary_size(tokenizer: Qwen2Tokenizer) -> int:
    """Rows of a model's embedding: some more than there are tokens."""
    return -(-len(tokenizer) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE


def _config(tokenizer: Qwen2Tokenizer) -> Qwen2_5_VLConfig:
    token_ids = tokenizer.get_vocab()
    vocabulary = vocabulary_size(tokenizer)
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": _HIDDEN_SIZE,
            "intermediate_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT_LENGTH,
            # The sections split half a head (32 / 2) over time, height and width.
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [4, 6, 6],
                "rope_theta": 10000.0,
            },
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": _HIDDEN_SIZE,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [1],
        },
        image_token_id=token_ids[IMAGE_PAD],
        video_token_id=token_ids[VIDEO_PAD],
        vision_start_token_id=token_ids[VISION_START],
        vision_end_token_id=token_ids[VISION_END],
        tie_word_embeddings=True,
    )


def _processor(tokenizer: Qwen2Tokenizer) -> Qwen2_5_VLProcessor:
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS),
        chat_template=CHAT_TEMPLATE,
    )
