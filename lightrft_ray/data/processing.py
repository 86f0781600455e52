"""From a prompt and its images to model inputs: once per prompt, for generator and trainer alike.

The generator's ids hold *one* placeholder per image, since vLLM expands placeholders itself; the
trainer's hold one per image token. Both come from the same processor with the same limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import jinja2
import torch
from PIL import Image
from torch import Tensor
from transformers import (
    AutoProcessor,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)

from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.messages import ChatMessage
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.video import Video

Processor = ProcessorMixin | PreTrainedTokenizerBase

_TEXT_INPUTS = ("input_ids", "attention_mask")
_PER_TOKEN_INPUTS = ("mm_token_type_ids",)


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as the generator and as the trainer take it.

    `mm_inputs` is empty for a text prompt. With images, for Qwen-VL models: `pixel_values` (rows,
    patch) float32, `image_grid_thw` (images, 3) int64 in patches, and `mm_token_type_ids` (L,)
    int64, 1 at image tokens.
    """

    id: str
    token_ids: list[int]  # one placeholder per image
    expanded_ids: Tensor  # (L,) int64, one placeholder per image token
    mm_inputs: dict[str, Tensor]


def load_processor(path: str | Path, trust_remote_code: bool = False) -> Processor:
    """The processor of a model folder or hub name; of a language model, its tokenizer.

    A path that is absolute or starts with a dot is never looked for on the hub. Raises UserError if
    there is no processor.
    """
    if str(path).startswith(("/", ".")) and not Path(path).is_dir():
        raise UserError(f"model {str(path)!r}: there is no such folder")
    try:
        processor = AutoProcessor.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"model {str(path)!r}: no processor or tokenizer could be loaded ({reason}); the folder"
            " needs the tokenizer's files and, to see images, processor_config.json"
        ) from error
    if not isinstance(processor, ProcessorMixin | PreTrainedTokenizerBase):
        raise UserError(f"model {str(path)!r}: only a {type(processor).__name__}, no tokenizer")
    return processor


def tokenizer_of(processor: Processor) -> PreTrainedTokenizerBase:
    """The tokenizer inside a processor; a tokenizer is its own."""
    if isinstance(processor, PreTrainedTokenizerBase):
        return processor
    tokenizer: PreTrainedTokenizerBase = processor.tokenizer
    return tokenizer


class PromptEncoder:
    """Renders a prompt with the model's chat template and runs its processor once."""

    def __init__(
        self, processor: Processor, system_prompt: str | None, prompt_max_len: int
    ) -> None:
        """`system_prompt` leads prompts without their own; `prompt_max_len` counts image tokens.

        Raises UserError if the model has no chat template.
        """
        if not processor.chat_template:
            raise UserError("the model's tokenizer has no chat template: give a chat model")
        self._processor = processor
        self._tokenizer = tokenizer_of(processor)
        self._system_prompt = system_prompt
        self._prompt_max_len = prompt_max_len

    def encode(
        self, prompt: Prompt, images: Sequence[Image.Image], videos: Sequence[Video] = ()
    ) -> EncodedPrompt:
        """Token ids and pixel rows of a prompt with its decoded RGB images and its videos.

        Raises DataFault, which names the prompt, if the chat template or the processor refuses it,
        if its text spells a placeholder, or if it is longer than the limit; UserError if there are
        media and the model takes none.
        """
        text = self._render(prompt)
        token_ids = self._tokenize(prompt.id, text, len(images), len(videos))
        if images or videos:
            expanded_ids, mm_inputs = self._process(prompt, text, images, videos)
        else:
            expanded_ids, mm_inputs = torch.tensor(token_ids), {}
        self.check_length(prompt.id, len(expanded_ids))
        return EncodedPrompt(prompt.id, token_ids, expanded_ids, mm_inputs)

    def token_ids(self, prompt: Prompt) -> list[int]:
        """The generator's ids alone, one placeholder per medium, without running the processor.

        Raises DataFault as `encode` does.
        """
        return self._tokenize(
            prompt.id, self._render(prompt), len(prompt.images), len(prompt.videos)
        )

    def check_length(self, prompt_id: str, length: int) -> None:
        """Raise DataFault for a `length` (in tokens, image tokens included) over the limit."""
        if length > self._prompt_max_len:
            raise DataFault(
                f"prompt {prompt_id}: {length} tokens, over data.prompt_max_len"
                f" {self._prompt_max_len}"
            )

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, without special tokens such as the end of the turn."""
        text = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return str(text)

    def _tokenize(self, prompt_id: str, text: str, images: int, videos: int) -> list[int]:
        token_ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        self._check_placeholders(prompt_id, token_ids, images, videos)
        return token_ids

    def _render(self, prompt: Prompt) -> str:
        messages = list(prompt.messages)
        if self._system_prompt is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self._system_prompt})
        if not isinstance(self._processor, ProcessorMixin):
            messages = [_joined_text(message) for message in messages]
        try:
            text = self._processor.apply_chat_template(
                # transformers' annotation leaves out contents that are lists of parts
                cast(list[dict[str, str]], messages),
                add_generation_prompt=True,
                tokenize=False,
            )
        except jinja2.TemplateError as error:
            raise DataFault(f"prompt {prompt.id}: refused by the chat template: {error}") from error
        return str(text)

    def _check_placeholders(
        self, prompt_id: str, token_ids: list[int], images: int, videos: int
    ) -> None:
        """A text that spells a placeholder would shift every image after it."""
        for medium, expected in (("image", images), ("video", videos)):
            placeholder = getattr(self._processor, f"{medium}_token_id", None)
            if placeholder is None:
                continue
            found = token_ids.count(placeholder)
            if found != expected:
                counts = f"{found} {medium} placeholder(s) for {expected} {medium}(s)"
                raise DataFault(f"prompt {prompt_id}: {counts}")

    def _process(
        self, prompt: Prompt, text: str, images: Sequence[Image.Image], videos: Sequence[Video]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        media: dict[str, object] = {}
        if images:
            self._require("image", prompt)
            media = {"images": list(images)}
        if videos:
            self._require("video", prompt)
            media["videos"] = [each.frames for each in videos]
            media["video_metadata"] = [each.metadata() for each in videos]
            media["do_sample_frames"] = False  # they are the sampled ones
        try:
            inputs = self._processor(
                text=[text], **media, add_special_tokens=False, return_tensors="pt"
            )
        except ValueError as error:
            raise DataFault(f"prompt {prompt.id}: refused by the processor: {error}") from error
        mm_inputs = {
            name: value[0] if name in _PER_TOKEN_INPUTS else value
            for name, value in inputs.items()
            if name not in _TEXT_INPUTS
        }
        return inputs["input_ids"][0], mm_inputs

    def _require(self, medium: str, prompt: Prompt) -> None:
        if getattr(self._processor, f"{medium}_processor", None) is None:
            raise UserError(
                f"prompt {prompt.id} has {medium}s and the model's processor takes none"
            )


def pixel_limits(processor: Processor, settings: MediaConfig) -> dict[str, object]:
    """The sizes that media are scaled to, as arguments of the processor; {} for its own.

    Raises UserError where a limit is set and the processor has none in pixels.
    """
    arguments: dict[str, object] = {}
    for medium in ("image", "video"):
        low = getattr(settings, f"{medium}_min_pixels")
        high = getattr(settings, f"{medium}_max_pixels")
        if low is None and high is None:
            continue
        name = f"media.{medium}_{'min' if high is None else 'max'}_pixels"
        part = getattr(processor, f"{medium}_processor", None)
        known = getattr(getattr(part, "valid_kwargs", None), "__annotations__", {})
        if part is None or "max_pixels" not in known:
            raise UserError(
                f"{name}: a {type(part or processor).__name__} has no limits in pixels: set it to "
                "null"
            )
        size = {
            "shortest_edge": part.size["shortest_edge"] if low is None else low,
            "longest_edge": part.size["longest_edge"] if high is None else high,
        }
        if size["shortest_edge"] > size["longest_edge"]:
            raise UserError(
                f"{name}: with the processor's own other limit, at least {size['shortest_edge']} "
                f"and at most {size['longest_edge']} pixels leave nothing: set both"
            )
        arguments[f"{medium}s_kwargs"] = {"size": size}
    return arguments


def _joined_text(message: ChatMessage) -> ChatMessage:
    """Language models' chat templates take a string."""
    content = message["content"]
    if isinstance(content, str):
        return message
    return {"role": message["role"], "content": "".join(part.get("text", "") for part in content)}
