"""A tiny Qwen2.5 checkpoint of text alone, built rather than downloaded.

As `tiny_vlm` without the vision tower: the published checkpoints' architecture and file layout,
with about 0.7M parameters and bytes for tokens.
"""

from pathlib import Path

from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from lightrft_ray.data.tiny_vlm import (
    CONTEXT_LENGTH,
    byte_tokenizer,
    vocabulary_size,
    write_random,
)


def build_tiny_qwen(folder: Path, seed: int = 0) -> None:
    """Write a randomly initialised float32 checkpoint with its tokenizer into `folder`.

    The same seed gives the same bytes; the caller's random state is left as it was.
    """
    tokenizer = byte_tokenizer()
    write_random(folder, Qwen2ForCausalLM, _config(tokenizer), tokenizer, seed)
    tokenizer.save_pretrained(folder)


def tiny_qwen_config() -> Qwen2Config:
    """The configuration that the checkpoint has, without building it."""
    return _config(byte_tokenizer())


def _config(tokenizer: Qwen2Tokenizer) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary_size(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
