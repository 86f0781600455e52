"""Prompts as vLLM takes them, and their processed media for the models that score and learn.

vLLM's own renderer runs the Hugging Face processor, once per prompt, so that the engine and all
other models see the same pixels and the same expanded placeholders.
"""

import asyncio
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from vllm.inputs import EngineInput, TokensPrompt
from vllm.renderers import BaseRenderer

from lightrft_ray.config import DataFault
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.decoding import DecodedMedia, MediaDecoder, read_media
from lightrft_ray.data.processing import PromptEncoder
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.video import Video
from lightrft_ray.workers.render_ahead import RenderAhead
from lightrft_ray.workers.render_cache import RenderCache
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

    @property
    def nbytes(self) -> int:
        """Size of the processed media and the token ids."""
        return self.token_ids.nbytes + sum(each.nbytes for each in (self.media() or {}).values())

    def behind_media(self) -> int:
        """The first token behind all placeholders; at least 1, as a first token has no log-prob."""
        if self.engine_input["type"] != "multimodal":
            return 1
        placeholders = self.engine_input["mm_placeholders"]
        ranges = [each for modality in placeholders.values() for each in modality]
        return max([1, *(each.offset + each.length for each in ranges)])


class PromptRenderer:
    """Loads a prompt's media and renders both; what it rendered is kept for when it comes again.

    A prompt with media takes one way through a thread, in which its decoded pixels live. vLLM's
    renderer works on one at a time, as some models' processors can do no more.
    """

    def __init__(
        self, encoder: PromptEncoder, renderer: BaseRenderer, settings: MediaConfig
    ) -> None:
        self._encoder = encoder
        self._renderer = renderer
        self._is_rendering = threading.Lock()
        self._decoder = MediaDecoder(settings)
        self.cache: RenderCache[RenderedPrompt] = RenderCache(settings.media_cache_mb * 10**6)
        self.ahead: RenderAhead[RenderedPrompt] = RenderAhead(
            self._render, settings.ahead_mb * 10**6, together=self._decoder.width
        )

    async def render(self, prompt: Prompt, continuation: Sequence[int] = ()) -> RenderedPrompt:
        """The prompt, with token ids put behind it. Raises DataFault if it cannot be used."""
        ready = None if continuation else self.ahead.claim(prompt)
        return await (self._render(prompt, continuation) if ready is None else ready)

    async def _render(self, prompt: Prompt, continuation: Sequence[int] = ()) -> RenderedPrompt:
        token_ids = self._encoder.token_ids(prompt)
        # Checked here and again when expanded: vLLM raises for what is longer than its context.
        self._encoder.check_length(prompt.id, len(token_ids))
        token_ids = [*token_ids, *continuation]
        if prompt.images or prompt.videos:
            loop, threads = asyncio.get_running_loop(), self._decoder.threads
            rendered = await loop.run_in_executor(threads, self._with_media, prompt, token_ids)
        else:
            rendered = self._process(TokensPrompt(prompt_token_ids=token_ids))
        self._encoder.check_length(prompt.id, len(rendered.token_ids) - len(continuation))
        return rendered

    def close(self) -> None:
        """End the processes that decode."""
        self._decoder.close()

    def _with_media(self, prompt: Prompt, token_ids: list[int]) -> RenderedPrompt:
        encoded = read_media(prompt)
        digests = encoded.digests()
        key = _key(token_ids, digests)
        kept = self.cache.get(key)
        if kept is not None:
            return kept
        try:
            request = TokensPrompt(
                prompt_token_ids=token_ids,
                multi_modal_data=_given(self._decoder.decode(prompt, encoded)),
                multi_modal_uuids=digests,  # vLLM would hash the pixels
            )
            with self._is_rendering:
                rendered = self._process(request)
        except ValueError as error:
            reason = str(error.__cause__ or error).strip().split("\n")[0]
            raise DataFault(
                f"prompt {prompt.id}: its media are refused by the processor: {reason}"
            ) from error
        self.cache.put(key, rendered, rendered.nbytes)
        return rendered

    def _process(self, request: TokensPrompt) -> RenderedPrompt:
        (engine_input,) = self._renderer.render_cmpl([request])
        return RenderedPrompt(engine_input, np.asarray(_expanded_ids(engine_input), dtype=np.int64))


def _key(token_ids: Sequence[int], digests: Mapping[str, Sequence[str]]) -> bytes:
    digest = hashlib.blake2b(np.asarray(token_ids).tobytes(), digest_size=16)
    for kind, each in digests.items():
        digest.update(f"{kind} {' '.join(each)}".encode())
    return digest.digest()


def _given(media: DecodedMedia) -> dict[str, list[object]]:
    """Media as vLLM's renderer takes them."""
    given: dict[str, list[object]] = {}
    if media.images:
        given["image"] = list(media.images)
    if media.videos:
        given["video"] = [_as_sampled(video) for video in media.videos]
    return given


def _as_sampled(video: Video) -> tuple[np.ndarray, dict[str, object]]:
    return video.frames, video.metadata() | {"do_sample_frames": False}


def _expanded_ids(engine_input: EngineInput) -> Sequence[int]:
    return cast(Mapping[str, Sequence[int]], engine_input)["prompt_token_ids"]
