"""The generator: an async Ray actor around a vLLM engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import ray

from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.process_memory import process_tree_mb

if TYPE_CHECKING:
    import numpy as np
    from ray import ObjectRef

    from lightrft_ray.config import DataFault, RunConfig
    from lightrft_ray.data.demonstrations import Demonstration
    from lightrft_ray.data.prompts import Prompt
    from lightrft_ray.sync.buckets import BucketSpec
    from lightrft_ray.workers.messages import (
        GenerationSettings,
        GroupTokens,
        PromptTask,
        RolloutGroup,
        SkippedPrompt,
    )


@ray.remote
class Generator:
    """Samples responses under the latest weights it was given; see `VllmEngine`."""

    def __init__(
        self,
        config: RunConfig,
        forbidden_token_ids: Sequence[int],
        max_images: int,
        max_videos: int = 0,
    ) -> None:
        # Imported here: the driver knows this class too, and need not load vLLM for it.
        from lightrft_ray.workers.vllm_engine import VllmEngine

        log_as_worker()
        self._activity = Activity()
        self._engine = VllmEngine(config, forbidden_token_ids, max_images, max_videos)

    async def ready(self) -> None:
        """Return once the engine runs and can be given weights."""
        await self._engine.connect()

    async def ping(self) -> None:
        """Answer, also while there is work: a sign of life, of the engine's processes as well."""
        await self._engine.ping()

    async def abandon(self) -> None:
        """Give up what is being sampled; returns when the engine has nothing left to do."""
        await self._engine.abandon()

    @noted("generate")
    async def generate(
        self, tasks: Sequence[PromptTask], settings: GenerationSettings
    ) -> list[RolloutGroup | SkippedPrompt]:
        """Sample every prompt; results in the order of `tasks`."""
        return await self._engine.generate(tasks, settings)

    async def encode(
        self, demonstrations: Sequence[Demonstration]
    ) -> list[GroupTokens | DataFault]:
        """Demonstrations as models take them, or why one cannot be used; nothing is sampled."""
        return await self._engine.encode(demonstrations)

    async def encode_prompt(self, prompt: Prompt, continuation: Sequence[int]) -> GroupTokens:
        """What `score_prompt` scores, with the scored tokens (L,) as the response."""
        return await self._engine.encode_prompt(prompt, continuation)

    async def score_prompt(self, prompt: Prompt, continuation: Sequence[int]) -> np.ndarray:
        """Log-probs (L,) of a prompt's text behind its last image and of a fixed continuation."""
        return await self._engine.score_prompt(prompt, continuation)

    async def sleep(self) -> None:
        """Let go of the device's memory; weights are kept on the host."""
        await self._engine.sleep()

    async def wake(self, tags: Sequence[str]) -> None:
        """Take memory back for `weights`, then for the `kv_cache`."""
        await self._engine.wake(tags)

    @noted("publish")
    async def update_weights(
        self, version: int, buckets: Sequence[tuple[BucketSpec, ObjectRef]]
    ) -> float:
        """Load a weight version; the seconds for which nothing could be sampled."""
        return await self._engine.update_weights(version, buckets)

    async def meet_learner(self, init_info: dict[str, object]) -> None:
        """Meet the learner for a transport between GPUs."""
        await self._engine.meet_learner(init_info)

    async def start_update(self) -> None:
        """Stop sampling for an update over such a transport."""
        await self._engine.start_update()

    async def receive_update(self, update_info: dict[str, object]) -> None:
        """Receive weights that the learner is sending."""
        await self._engine.receive_update(update_info)

    @noted("publish")
    async def finish_update(self, version: int) -> float:
        """Go on with the new weights; the seconds for which nothing could be sampled."""
        return await self._engine.finish_update(version)

    async def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    async def resident_mb(self) -> float:
        """Memory of this worker and its engine's processes, in MB."""
        return process_tree_mb()

    async def stop(self) -> None:
        """End the engine's processes."""
        self._engine.stop()
