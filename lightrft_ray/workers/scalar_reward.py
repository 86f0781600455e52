"""A scalar reward model in a Ray actor, on a GPU or CPU of its own."""

from collections.abc import Sequence

import ray
from transformers import ProcessorMixin

from lightrft_ray.config import RunConfig
from lightrft_ray.data.processing import load_processor
from lightrft_ray.models.reward_scalar import ScalarRewardModel
from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.scalar_reward import ScalarReward
from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.devices import prepare_device
from lightrft_ray.workers.liveness import HEALTH
from lightrft_ray.workers.process_memory import process_tree_mb


@ray.remote(concurrency_groups={HEALTH: 1})  # type: ignore[call-overload]  # Ray's types lack it
class ScalarRewardWorker:
    """Scores samples by one of `reward.models`."""

    def __init__(self, config: RunConfig, name: str) -> None:
        log_as_worker()
        self._activity = Activity()
        settings = config.reward.models[name]
        trusts = config.model.trust_remote_code
        device = prepare_device(config, uses_gpu=settings.gpus_per_worker > 0)
        model = ScalarRewardModel(
            settings.pretrain, bf16=settings.dtype == "bfloat16", trust_remote_code=trusts
        )
        processor = load_processor(settings.pretrain, trusts)
        self._reward = ScalarReward(
            model.to(device).requires_grad_(False),
            processor,
            batch_size=settings.micro_batch_size,
            show_images=isinstance(processor, ProcessorMixin),
        )

    def ready(self) -> None:
        """Return once the model is loaded."""

    @noted("score")
    def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples."""
        return self._reward.score(samples)

    def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    @ray.method(concurrency_group=HEALTH)
    def ping(self) -> None:
        """Answer, also while there is work: a sign of life."""

    def resident_mb(self) -> float:
        """Memory of this worker, in MB."""
        return process_tree_mb()
