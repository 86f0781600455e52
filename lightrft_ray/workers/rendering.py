"""Prompts as vLLM takes them, and their processed media for the models that score and learn.

vLLM's own renderer runs the Hugging Face processor, once per prompt, so that the engine and all
other models see the same pixels and the same expanded placeholders.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from vllm.inputs import EngineInput, TokensPrompt
from vllm.renderers import BaseRenderer

from lightrft_ray.data.media import load_images
from lightrft_ray.data.processing import PromptEncoder
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.workers.rendered_media import model_inputs


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt ready for the engine; `token_ids` (P,) int64 holds the expanded placeholders."""

    engine_input: EngineInput
    token_ids: np.ndarray

    def media(self) -> dict[str, np.ndarray] | None:
        """Model inputs by name (pixel_values, image_grid_thw, …); None for text."""
        if self.engine_input["type"] != "multimodal":
            return None
        return model_inputs(self.engine_input["mm_kwargs"].get_data())

    def behind_media(self) -> int:
        """The first token behind all placeholders; at least 1, as a first token has no log-prob."""
        if self.engine_input["type"] != "multimodal":
            return 1
        placeholders = self.engine_input["mm_placeholders"]
        ranges = [each for modality in placeholders.values() for each in modality]
        return max([1, *(each.offset + each.length for each in ranges)])


class PromptRenderer:
    """Loads a prompt's media and renders both."""

    def __init__(self, encoder: PromptEncoder, renderer: BaseRenderer) -> None:
        self._encoder = encoder
        self._renderer = renderer

    async def render(self, prompt: Prompt, continuation: Sequence[int] = ()) -> RenderedPrompt:
        """The prompt, with token ids put behind it. Raises DataFault if it cannot be used."""
        token_ids = self._encoder.token_ids(prompt)
        # Checked here and again when expanded: vLLM raises for what is longer than its context.
        self._encoder.check_length(prompt.id, len(token_ids))
        request = TokensPrompt(prompt_token_ids=[*token_ids, *continuation])
        if prompt.images:
            images = await asyncio.to_thread(load_images, prompt)
            request["multi_modal_data"] = {"image": images}
        (engine_input,) = await self._renderer.render_cmpl_async([request])
        expanded = np.asarray(_expanded_ids(engine_input), dtype=np.int64)
        self._encoder.check_length(prompt.id, len(expanded) - len(continuation))
        return RenderedPrompt(engine_input, expanded)


def _expanded_ids(engine_input: EngineInput) -> Sequence[int]:
    return cast(Mapping[str, Sequence[int]], engine_input)["prompt_token_ids"]
