"""The weights of a generator's engine: how new ones get in, and that nothing mixes them up."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ray import ObjectRef
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM

from lightrft_ray.config import RunConfig
from lightrft_ray.sync.buckets import BucketSpec
from lightrft_ray.workers.engine_adapter import EngineAdapter
from lightrft_ray.workers.frozen_weights import frozen_names
from lightrft_ray.workers.weight_inbox import WeightInbox

logger = logging.getLogger(__name__)


class EngineWeights:
    """Loads weight versions into an engine, which is held meanwhile.

    On return from an update no cache holds anything of an older version. Requests under way keep
    their tokens and go on with the new weights, under which all that came before is computed again.
    Where an update fails, the engine stays held: it cannot be used any more.
    """

    def __init__(self, config: RunConfig, engine: AsyncLLM) -> None:
        self._config = config
        self._engine = engine
        self._inbox = WeightInbox()
        sends_adapter = config.sync.lora_sync == "adapter"
        self._adapter = EngineAdapter(config.model) if sends_adapter else None
        self._holding = asyncio.Lock()
        self._held_since = 0.0
        self.version = 0
        self.is_updating = False

    @property
    def adapter(self) -> LoRARequest | None:
        """What requests sample with beside the engine's own weights."""
        return None if self._adapter is None else self._adapter.request

    async def connect(self) -> None:
        """Set up the engine's end of the object store's transport; for others the learner does."""
        if self._config.sync.transport == "object_store":
            request = WeightTransferInitRequest({"left_out": frozen_names(self._config)})
            await self._engine.init_weight_transfer_engine(request)

    async def update(self, version: int, buckets: Sequence[tuple[BucketSpec, ObjectRef]]) -> float:
        """Load a version from the object store; the seconds for which the engine was held.

        Buckets are fetched and checked while the engine may still generate; it is held only while
        they are loaded.
        """
        await self._inbox.fetch(buckets)
        await self._begin()
        if self._adapter is None:
            await self._engine.start_weight_update()
            await self._engine.update_weights(WeightTransferUpdateRequest(self._inbox.located()))
            await self._engine.finish_weight_update(str(version))
        else:
            await self._adapter.load(self._engine, dict(self._inbox.weights()))
            await self._engine.update_weight_version(str(version))
        return await self._end(version)

    async def meet_learner(self, init_info: dict[str, Any]) -> None:
        """Set up a transport between GPUs, in the place of one before."""
        await self._engine.shutdown_weight_transfer_engine()
        await self._engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info))

    async def start_update(self) -> None:
        """Hold the engine for an update over such a transport, which the learner goes on with."""
        await self._begin()
        await self._engine.start_weight_update()

    async def receive_update(self, update_info: dict[str, Any]) -> None:
        """Receive what the learner is sending."""
        await self._engine.update_weights(WeightTransferUpdateRequest(update_info))

    async def finish_update(self, version: int) -> float:
        """Go on with what was received; the seconds for which the engine was held."""
        await self._engine.finish_weight_update(str(version))
        return await self._end(version)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the engine for a block, beside no other that does."""
        async with self._holding:
            await self._hold()
            try:
                yield
            finally:
                await self._engine.resume_generation()

    async def _begin(self) -> None:
        await self._holding.acquire()
        self._held_since = time.perf_counter()
        await self._hold()
        self.is_updating = True

    async def _end(self, version: int) -> float:
        await self._reset_caches()
        self.version = version
        await self._engine.resume_generation()
        self.is_updating = False
        seconds = time.perf_counter() - self._held_since
        self._holding.release()
        logger.debug("weights loaded", extra={"version": version})
        return seconds

    async def _hold(self) -> None:
        """Stop scheduling and keep what is queued.

        This is AsyncLLM.pause_generation(mode="keep") without its rest of 20 ms, which lets outputs
        of running requests arrive first and is not needed for the pause to hold.
        """
        await self._engine.engine_core.pause_scheduler_async(mode="keep", clear_cache=False)

    async def _reset_caches(self) -> None:
        """Drop what was computed under older weights: prefixes, processed media, encodings.

        What running requests have computed, too: they are preempted, and go on from their tokens.
        """
        await self._engine.reset_prefix_cache(reset_running_requests=True)
        await self._engine.reset_mm_cache()
        await self._engine.reset_encoder_cache()
