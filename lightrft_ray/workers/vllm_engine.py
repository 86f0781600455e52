"""vLLM as a generator: token ids in, token ids with log-probs out.

The engine is vLLM's AsyncLLM, whose processes live and die with this one. vLLM's own renderer runs the Hugging Face
processor, once per prompt; its pixel rows go to the engine and, through the object store, to the
models that score and learn, so that all of them see the same image.
"""

import asyncio
from collections.abc import Sequence

import numpy as np
import ray
import torch
from ray import ObjectRef
from vllm import SamplingParams
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.inputs import MultiModalInput, TokensInput
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import RequestOutputCollector

from lightrft_ray.config import DataFault, RunConfig
from lightrft_ray.data.media import load_image
from lightrft_ray.data.processing import PromptEncoder, load_processor
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.sync.buckets import BucketSpec, verify_checksum
from lightrft_ray.sync.shared_buffer import SharedBuffer
from lightrft_ray.workers.engine_arguments import engine_arguments
from lightrft_ray.workers.messages import (
    GeneratedSample,
    GenerationSettings,
    GroupTokens,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)

EngineInput = MultiModalInput | TokensInput


class VllmEngine:
    """Samples responses under the latest weights it was given."""

    def __init__(
        self, config: RunConfig, forbidden_token_ids: Sequence[int], max_images: int
    ) -> None:
        """Start the engine and its processes; takes half a minute."""
        self._encoder = PromptEncoder(
            load_processor(config.model.pretrain, config.model.trust_remote_code),
            config.data.system_prompt,
            config.data.prompt_max_len,
        )
        self._forbidden = {token: float("-inf") for token in forbidden_token_ids}
        self._version = 0
        self._requests = 0
        self._buffer = SharedBuffer("lightrft_weights")
        self._engine = AsyncLLM.from_engine_args(engine_arguments(config, max_images))

    async def connect(self) -> None:
        """Set up the engine's end of the weight transport."""
        await self._engine.init_weight_transfer_engine(WeightTransferInitRequest({}))

    async def generate(
        self, tasks: Sequence[PromptTask], settings: GenerationSettings
    ) -> list[RolloutGroup | SkippedPrompt]:
        """Sample every prompt; results in the order of `tasks`.

        The engine is held until it has all requests, and gets them in order: which sequences it
        batches together, and with that the last bit of every number, is the same in every run.
        """
        inputs = [await self._encode(task) for task in tasks]
        await self._hold()
        try:
            collectors = [
                None
                if isinstance(prompt, SkippedPrompt)
                else await self._submit(prompt, self._sampling_params(task, settings))
                for task, prompt in zip(tasks, inputs, strict=True)
            ]
        finally:
            await self._engine.resume_generation()
        return [
            prompt
            if isinstance(prompt, SkippedPrompt) or collector is None
            else self._group(task, prompt, await _finished(collector))
            for task, prompt, collector in zip(tasks, inputs, collectors, strict=True)
        ]

    async def score_prompt(
        self, prompt: Prompt, continuation: Sequence[int]
    ) -> tuple[GroupTokens, np.ndarray]:
        """Log-probs of a prompt's text behind its last image and of a fixed continuation.

        They are of the model's plain distribution. In the group, the scored tokens (L,) are the
        response. Raises DataFault for a prompt that cannot be encoded.
        """
        token_ids = [*self._encoder.token_ids(prompt), *continuation]
        engine_input = await self._render(prompt, token_ids)
        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await _finished(await self._submit(engine_input, params))
        ids = np.asarray(engine_input["prompt_token_ids"], dtype=np.int64)
        cut = _behind_media(engine_input)
        log_probs = [
            position[token].logprob
            for token, position in zip(
                ids[cut:].tolist(), (output.prompt_logprobs or [])[cut:], strict=True
            )
        ]
        group = GroupTokens(ids[:cut], (ids[cut:],), _put_media(engine_input))
        return group, np.asarray(log_probs, dtype=np.float32)

    async def update_weights(
        self, version: int, buckets: Sequence[tuple[BucketSpec, ObjectRef]]
    ) -> None:
        """Load a weight version; on return no cache holds anything of an older one.

        Buckets are fetched and checked while the engine may still generate; it is held only while
        they are loaded. Raises an error, and keeps the engine held, where the update failed.
        """
        blocks = await asyncio.gather(*(reference for _, reference in buckets))
        for (spec, _), block in zip(buckets, blocks, strict=True):
            verify_checksum(spec, block)
        offsets = self._buffer.write(blocks)
        located = [
            (offset, spec.to_dict()) for offset, (spec, _) in zip(offsets, buckets, strict=True)
        ]
        await self._hold()
        await self._engine.start_weight_update()
        await self._engine.update_weights(
            WeightTransferUpdateRequest({"path": self._buffer.path, "buckets": located})
        )
        await self._engine.finish_weight_update(str(version))
        await self._reset_caches()
        self._version = version
        await self._engine.resume_generation()

    def stop(self) -> None:
        """End the engine's processes."""
        self._engine.shutdown()

    async def _encode(self, task: PromptTask) -> EngineInput | SkippedPrompt:
        try:
            token_ids = self._encoder.token_ids(task.prompt)
            self._encoder.check_length(task.prompt.id, len(token_ids))  # vLLM raises, we skip
            engine_input = await self._render(task.prompt, token_ids)
            self._encoder.check_length(task.prompt.id, len(engine_input["prompt_token_ids"]))
        except DataFault as fault:
            return SkippedPrompt(task, str(fault))
        return engine_input

    async def _render(self, prompt: Prompt, token_ids: list[int]) -> EngineInput:
        """Run the processor: placeholders in `token_ids` are one per image and get expanded."""
        request: dict[str, object] = {"prompt_token_ids": token_ids}
        if prompt.images:
            images = [
                await asyncio.to_thread(load_image, reference, prompt.image_root)
                for reference in prompt.images
            ]
            request["multi_modal_data"] = {"image": images}
        (engine_input,) = await self._engine.renderer.render_cmpl_async([request])
        return engine_input

    async def _submit(
        self, engine_input: EngineInput, params: SamplingParams
    ) -> RequestOutputCollector:
        self._requests += 1
        return await self._engine.add_request(f"request-{self._requests}", engine_input, params)

    def _sampling_params(self, task: PromptTask, settings: GenerationSettings) -> SamplingParams:
        return SamplingParams(
            n=settings.n,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=task.seed,  # vLLM gives sample i the seed + i
            logprobs=0,  # of the sampled token alone
            logit_bias=self._forbidden,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _group(
        self, task: PromptTask, engine_input: EngineInput, output: RequestOutput
    ) -> RolloutGroup:
        return RolloutGroup(
            task=task,
            prompt_ids=np.asarray(engine_input["prompt_token_ids"], dtype=np.int64),
            media=_put_media(engine_input),
            samples=tuple(self._sample(completion) for completion in output.outputs),
        )

    def _sample(self, completion: CompletionOutput) -> GeneratedSample:
        token_ids = list(completion.token_ids)
        log_probs = [
            position[token].logprob
            for token, position in zip(token_ids, completion.logprobs or [], strict=True)
        ]
        return GeneratedSample(
            token_ids=np.asarray(token_ids, dtype=np.int64),
            log_probs=np.asarray(log_probs, dtype=np.float32),
            weight_versions=np.full(len(token_ids), self._version, dtype=np.int64),
            text=self._encoder.decode(token_ids),
            is_truncated=completion.finish_reason == "length",
        )

    async def _hold(self) -> None:
        """Stop scheduling and keep what is queued.

        This is AsyncLLM.pause_generation(mode="keep") without its rest of 20 ms, which lets outputs
        of running requests arrive first and is not needed for the pause to hold.
        """
        await self._engine.engine_core.pause_scheduler_async(mode="keep", clear_cache=False)

    async def _reset_caches(self) -> None:
        """Drop what was computed under older weights: prefixes, processed media, encodings."""
        await self._engine.reset_prefix_cache()
        await self._engine.reset_mm_cache()
        await self._engine.reset_encoder_cache()


async def _finished(collector: RequestOutputCollector) -> RequestOutput:
    try:
        output = await collector.get()
    finally:
        collector.close()
    if not isinstance(output, RequestOutput) or not output.finished:
        raise RuntimeError("vLLM gave an unfinished output for a request that asked for the last")
    return output


def _put_media(engine_input: EngineInput) -> ObjectRef | None:
    """The prompt's processed media in the object store, as arrays by model input name."""
    if "mm_kwargs" not in engine_input:
        return None
    tensors = engine_input["mm_kwargs"].get_data()
    return ray.put({name: _as_array(tensor) for name, tensor in tensors.items()})


def _as_array(tensor: object) -> np.ndarray:
    """numpy knows no bfloat16; models cast pixels to their own type anyway."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a processed media input is a {type(tensor).__name__}, not one tensor")
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _behind_media(engine_input: EngineInput) -> int:
    """The first token behind all placeholders; at least 1, as a first token has no log-prob."""
    ranges = [
        placeholder
        for placeholders in engine_input.get("mm_placeholders", {}).values()
        for placeholder in placeholders
    ]
    return max([1, *(placeholder.offset + placeholder.length for placeholder in ranges)])


