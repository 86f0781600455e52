"""vLLM as a generator: token ids in, token ids with log-probs out.

The engine is vLLM's AsyncLLM, whose processes live and die with this one.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import ray
from ray import ObjectRef
from vllm import SamplingParams
from vllm.inputs import EngineInput
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import RequestOutputCollector

from lightrft_ray.config import DataFault, RunConfig
from lightrft_ray.data.demonstrations import Demonstration
from lightrft_ray.data.processing import PromptEncoder, load_processor, pixel_limits
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.sync.buckets import BucketSpec
from lightrft_ray.sync.engine_owner import own_engine
from lightrft_ray.workers.engine_arguments import engine_arguments
from lightrft_ray.workers.engine_guard import dies_with_engine, leave
from lightrft_ray.workers.engine_requests import Pending, finished
from lightrft_ray.workers.engine_scratch import EngineScratch
from lightrft_ray.workers.engine_weights import EngineWeights
from lightrft_ray.workers.hot_first_token import hot_first_token
from lightrft_ray.workers.messages import (
    GeneratedSample,
    GenerationSettings,
    GroupTokens,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)
from lightrft_ray.workers.rendering import PromptRenderer, RenderedPrompt
from lightrft_ray.workers.sampled_tokens import log_probs_of, versions_of

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.5  # s
_ABANDON_EVERY = 0.01  # s


class VllmEngine:
    """Samples responses under the latest weights it was given."""

    def __init__(
        self,
        config: RunConfig,
        forbidden_token_ids: Sequence[int],
        max_images: int,
        max_videos: int = 0,
    ) -> None:
        """Start the engine and its processes; takes half a minute."""
        self._config = config
        processor = load_processor(config.model.pretrain, config.model.trust_remote_code)
        self._encoder = PromptEncoder(
            processor, config.data.system_prompt, config.data.prompt_max_len
        )
        self._forbidden = {token: float("-inf") for token in forbidden_token_ids}
        self._requests = 0
        self.calls = 0  # under way
        self._is_stopped = False
        arguments = engine_arguments(
            config,
            {"image": max_images, "video": max_videos},
            pixel_limits(processor, config.media),
        )
        own_engine()
        self._scratch = EngineScratch()
        with self._scratch.noting():
            self._engine = AsyncLLM.from_engine_args(arguments)
        self.weights = EngineWeights(config, self._engine)
        self._renderer = PromptRenderer(self._encoder, self._engine.renderer, config.media)

    @dies_with_engine
    async def connect(self) -> None:
        """Set up the engine's end of the weight transport."""
        await self.weights.connect()
        # Returns when vLLM has warmed up the processor, which not all can run twice at once.
        await self._engine.reset_mm_cache()

    async def ping(self) -> None:
        """Return when the engine's processes have answered; ends this one where they are gone."""
        answer = asyncio.ensure_future(self._engine.collective_rpc("check_health"))
        while not answer.done():
            await asyncio.wait([answer], timeout=_LOOK_EVERY)
            if self._is_stopped:
                return
            if self.is_engine_dead():
                leave()
        await answer

    def is_engine_dead(self) -> bool:
        """Whether vLLM knows that a process of the engine is gone."""
        return self._engine.errored

    async def abandon(self) -> None:
        """Give up all that is asked of it; returns when the engine has nothing left to do.

        Raises RuntimeError where a weight update has failed halfway.
        """
        while self.calls > 0:
            await self._engine.abort(list(self._engine.output_processor.external_req_ids))
            await asyncio.sleep(_ABANDON_EVERY)
        if self.weights.is_updating:
            raise RuntimeError("a weight update has failed halfway: the engine cannot be used")

    @dies_with_engine
    async def generate(
        self,
        tasks: Sequence[PromptTask],
        settings: GenerationSettings,
        upcoming: Sequence[Prompt] = (),
    ) -> list[RolloutGroup | SkippedPrompt]:
        """Sample every prompt; results in the order of `tasks`.

        While the engine works, the `upcoming` prompts are made ready for a later call.

        In lockstep the engine is held until it has all requests, and gets them in order: which
        sequences it batches together, and with that the last bit of every number, is the same in
        every run. In other runs it works on older requests meanwhile. When the call is cancelled,
        the engine drops its requests.
        """
        rendered = await asyncio.gather(*(self._render(task) for task in tasks))
        names = [self._new_name() for _ in rendered]
        try:
            async with self.weights.held() if self._config.rollout.in_lockstep else nullcontext():
                pending = [
                    each
                    if isinstance(each, SkippedPrompt)
                    else await self._start(name, *each, settings)
                    for name, each in zip(names, rendered, strict=True)
                ]
            if upcoming:
                self._renderer.ahead.begin(upcoming)
            return [
                each if isinstance(each, SkippedPrompt) else await self._finish(each)
                for each in pending
            ]
        except asyncio.CancelledError:
            await self._engine.abort(names)
            raise

    @dies_with_engine
    async def encode(
        self, demonstrations: Sequence[Demonstration]
    ) -> list[GroupTokens | DataFault]:
        """Demonstrations as models take them, or why one cannot be used; nothing is sampled."""
        return list(await asyncio.gather(*map(self._encode, demonstrations)))

    @dies_with_engine
    async def encode_prompt(self, prompt: Prompt, continuation: Sequence[int]) -> GroupTokens:
        """What `score_prompt` scores, with the scored tokens (L,) as the response.

        Raises DataFault for a prompt that cannot be encoded.
        """
        rendered = await self._renderer.render(prompt, continuation)
        cut = rendered.behind_media()
        scored = (rendered.token_ids[cut:],)
        return GroupTokens(rendered.token_ids[:cut], scored, _put(rendered.media()))

    @dies_with_engine
    async def score_prompt(self, prompt: Prompt, continuation: Sequence[int]) -> np.ndarray:
        """Log-probs (L,) of a prompt's text behind its last image and of a fixed continuation.

        They are of the model's plain distribution. Raises DataFault for a prompt that cannot be
        encoded.
        """
        rendered = await self._renderer.render(prompt, continuation)
        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await finished(await self._submit(self._new_name(), rendered, params))
        cut = rendered.behind_media()
        return log_probs_of(rendered.token_ids[cut:], (output.prompt_logprobs or [])[cut:])

    @dies_with_engine
    async def update_weights(
        self, version: int, buckets: Sequence[tuple[BucketSpec, ObjectRef]]
    ) -> float:
        """As `EngineWeights.update`."""
        return await self.weights.update(version, buckets)

    @dies_with_engine
    async def meet_learner(self, init_info: dict[str, Any]) -> None:
        """As `EngineWeights.meet_learner`."""
        await self.weights.meet_learner(init_info)

    @dies_with_engine
    async def start_update(self) -> None:
        """As `EngineWeights.start_update`."""
        await self.weights.start_update()

    @dies_with_engine
    async def receive_update(self, update_info: dict[str, Any]) -> None:
        """As `EngineWeights.receive_update`."""
        await self.weights.receive_update(update_info)

    @dies_with_engine
    async def finish_update(self, version: int) -> float:
        """As `EngineWeights.finish_update`."""
        return await self.weights.finish_update(version)

    @dies_with_engine
    async def sleep(self) -> None:
        """Let go of the device's memory (level 1: what is frozen is never published again)."""
        await self._engine.sleep(level=1)

    @dies_with_engine
    async def wake(self, tags: Sequence[str]) -> None:
        """Take memory back for `weights`, then for the `kv_cache`; then sampling goes on."""
        await self._engine.wake_up(list(tags))

    def stop(self) -> None:
        """End the engine's processes."""
        self._is_stopped = True
        self._renderer.close()
        self._engine.shutdown()
        self._scratch.remove()

    async def _encode(self, demonstration: Demonstration) -> GroupTokens | DataFault:
        try:
            rendered = await self._renderer.render(demonstration.prompt)
        except DataFault as fault:
            return fault
        responses = (demonstration.response_ids,)
        return GroupTokens(rendered.token_ids, responses, _put(rendered.media()))

    async def _render(self, task: PromptTask) -> tuple[PromptTask, RenderedPrompt] | SkippedPrompt:
        try:
            return task, await self._renderer.render(task.prompt)
        except DataFault as fault:
            logger.warning("a prompt is skipped", extra={"reason": str(fault)})
            return SkippedPrompt(task, str(fault))

    async def _start(
        self, name: str, task: PromptTask, rendered: RenderedPrompt, settings: GenerationSettings
    ) -> Pending:
        first = settings.first_token
        params = SamplingParams(
            n=settings.n,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=task.seed,  # vLLM gives sample i the seed + i
            logprobs=0,  # of the sampled token alone
            logit_bias=self._forbidden,
            extra_args=None if first is None else hot_first_token(first, settings.temperature),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        return Pending(task, rendered, await self._submit(name, rendered, params))

    def _new_name(self) -> str:
        self._requests += 1
        return f"request-{self._requests}"

    async def _submit(
        self, name: str, rendered: RenderedPrompt, params: SamplingParams
    ) -> RequestOutputCollector:
        """The version is a part of the keys of the prefix cache: none answers for another."""
        salted = {**rendered.engine_input, "cache_salt": f"version {self.weights.version}"}
        return await self._engine.add_request(
            name, cast(EngineInput, salted), params, lora_request=self.weights.adapter
        )

    async def _finish(self, pending: Pending) -> RolloutGroup:
        output = await finished(pending.collector)
        return RolloutGroup(
            task=pending.task,
            prompt_ids=pending.rendered.token_ids,
            media=_put(pending.rendered.media()),
            samples=tuple(self._sample(completion) for completion in output.outputs),
        )

    def _sample(self, completion: CompletionOutput) -> GeneratedSample:
        token_ids = np.asarray(completion.token_ids, dtype=np.int64)
        return GeneratedSample(
            token_ids=token_ids,
            log_probs=log_probs_of(token_ids, completion.logprobs or []),
            weight_versions=versions_of(completion),
            text=self._encoder.decode(token_ids.tolist()),
            is_truncated=completion.finish_reason == "length",
        )


def _put(media: Mapping[str, np.ndarray] | None) -> ObjectRef | None:
    """The prompt's processed media in the object store."""
    return None if media is None else ray.put(media)
