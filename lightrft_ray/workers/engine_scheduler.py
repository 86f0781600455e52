"""vLLM's scheduler, for engines whose weights change while requests are under way."""

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.structured_output import StructuredOutputManager


class SyncWholeMediaScheduler(Scheduler):
    """A scheduler whose worker gets the media of every request.

    vLLM 0.32 gives a worker no media that the prefix cache covers. When new weights come, caches
    are reset and what runs is computed anew, media included: the engine would die without them.
    """

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """What to compute next."""
        output = super().schedule(throttle_prefills)
        _restore_media(self, output)
        return output


class AsyncWholeMediaScheduler(AsyncScheduler):
    """The same for asynchronous scheduling."""

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """What to compute next."""
        output = super().schedule(throttle_prefills)
        _restore_media(self, output)
        return output


def whole_media_scheduler(
    *,
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    structured_output_manager: StructuredOutputManager,
    block_size: int,
    hash_block_size: int,
    include_finished_set: bool,
    log_stats: bool,
) -> Scheduler:
    """The one of the two that the engine's way of scheduling needs; vLLM calls it by its path."""
    is_async = vllm_config.scheduler_config.async_scheduling
    kind = AsyncWholeMediaScheduler if is_async else SyncWholeMediaScheduler
    return kind(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=structured_output_manager,
        block_size=block_size,
        hash_block_size=hash_block_size,
        include_finished_set=include_finished_set,
        log_stats=log_stats,
    )


def _restore_media(scheduler: Scheduler, output: SchedulerOutput) -> None:
    for new in output.scheduled_new_reqs:
        new.mm_features = scheduler.requests[new.req_id].mm_features
