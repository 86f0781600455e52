"""The tokenizer of the tiny checkpoints: bytes, and each family's own special tokens."""

from collections.abc import Mapping, Sequence

from tokenizers.pre_tokenizers import ByteLevel
from transformers import Qwen2Tokenizer

VOCABULARY = 320  # 256 bytes and room for special tokens; a multiple of 64
END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|im_end|>"


def byte_tokenizer(
    special: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
    image: str = "",
    plain: Sequence[str] = (),
) -> Qwen2Tokenizer:
    """`special` tokens, `named` ones as processors look them up, how a chat spells an image, and
    `plain` words that are one token.
    """
    tokenizer = Qwen2Tokenizer(
        vocab={byte: index for index, byte in enumerate(sorted(ByteLevel.alphabet()))},
        merges=[],
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=512,
        extra_special_tokens=dict(named or {}),
    )
    own = [END_OF_TEXT, END_OF_TURN, *special]
    tokenizer.add_special_tokens({"additional_special_tokens": own}, False)
    tokenizer.add_tokens(list(plain))
    tokenizer.chat_template = chat_template(image)
    return tokenizer


def chat_template(image: str) -> str:
    """Messages of text, or of parts of text and images."""
    return (
        "{% for message in messages %}{{ message['role'] }}: "
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}"
        "{% if part['type'] == 'image' %}" + image + "{% elif part['type'] == 'text' %}"
        "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
