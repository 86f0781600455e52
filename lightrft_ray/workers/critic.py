"""The critic: one data-parallel rank under DeepSpeed. It sees the prompts' images."""

from collections.abc import Sequence

import numpy as np
import ray
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.models.freezing import Freezing, freeze
from lightrft_ray.models.loading import enable_gradient_checkpointing, load_backbone
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import Rows
from lightrft_ray.models.token_models import TokenCritic
from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import Metrics
from lightrft_ray.trainer.objectives import value_objective
from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.batches import RankBatch, RowBuilder
from lightrft_ray.workers.blank_image import blank_image_group
from lightrft_ray.workers.deepspeed_engine import (
    ProcessGroup,
    StepResult,
    TrainableModel,
    free_address,
    join_process_group,
    sharded_loading,
)
from lightrft_ray.workers.devices import model_source, prepare_device
from lightrft_ray.workers.liveness import HEALTH
from lightrft_ray.workers.messages import GroupTokens
from lightrft_ray.workers.passes import run_updates, score_actions
from lightrft_ray.workers.process_memory import process_tree_mb
from lightrft_ray.workers.random_state import RandomState
from lightrft_ray.workers.snapshot import (
    CRITIC,
    Files,
    Snapshot,
    SnapshotSource,
    restore_snapshot,
    take_snapshot,
)


@ray.remote(concurrency_groups={HEALTH: 1})  # type: ignore[call-overload]  # Ray's types lack it
class CriticLearner:
    """Gives values and trains them."""

    def __init__(self, config: RunConfig, pad_token_id: int) -> None:
        log_as_worker()
        self._activity = Activity()
        self._config = config
        self._pad_token_id = pad_token_id
        uses_gpu = config.placement.critic_num_gpus_per_node > 0
        self._device = prepare_device(config, uses_gpu=uses_gpu)

    def address(self) -> tuple[str, int]:
        """Where this process can be met by the other ranks, if it is rank 0."""
        return free_address()

    def connect(self, group: ProcessGroup) -> None:
        """Meet the other ranks and load the model."""
        config = self._config
        self._rank = group.rank
        self._parts = {"random_state": RandomState()}
        join_process_group(group, config, self._device)
        with sharded_loading(config):
            path = config.model.critic_pretrain or config.model.pretrain
            backbone = load_backbone(model_source(config, path))
        freeze(backbone, Freezing.of_critic(config.model))
        if config.model.gradient_checkpointing:
            enable_gradient_checkpointing(backbone)
        critic = TokenCritic(backbone, seed=config.seed)
        self._trainable = TrainableModel(
            critic, config, config.trainer.critic_learning_rate, config.critic_optimizer_steps
        )
        self._rows = RowBuilder(
            config.trainer.row_layout,
            position_rule(backbone.config),
            self._pad_token_id,
            self._device,
            blank_image_group(backbone, config, ranks=group.world_size),
        )

    @noted("score")
    def values(self, groups: Sequence[GroupTokens]) -> np.ndarray:
        """Values (M,) float32 at the response tokens, sample after sample.

        A collective under ZeRO-3: every rank must call it with as many micro-batches.
        """
        self._trainable.engine.eval()
        size = self._config.trainer.micro_rollout_batch_size
        return score_actions(groups, size, self._rows, self._trainable.engine)

    @noted("train")
    def train(self, batches: Sequence[RankBatch]) -> tuple[Metrics, list[StepResult]]:
        """One optimizer step a batch; this rank's metrics and the results of all steps."""
        size = self._config.trainer.micro_train_batch_size
        return run_updates(self._trainable, batches, size, self._rows, self._objective)

    def _objective(
        self, rows: Rows, experience: ExperienceVL, batch: RankBatch
    ) -> tuple[Tensor, Metrics]:
        return value_objective(
            self._trainable.engine(rows),
            experience,
            self._config.algorithm,
            denominators=batch.denominators,
        )

    def leave_device(self) -> None:
        """Let others have the device's memory."""
        self._trainable.leave_device()

    def return_to_device(self) -> None:
        """Take the device's memory back."""
        self._trainable.return_to_device()

    @ray.method(num_returns=2)
    def snapshot(self) -> tuple[Files, Snapshot]:
        """This rank's part of a checkpoint; all ranks must call it."""
        with self._activity.phase("save"):
            return take_snapshot(self._trainable.engine, CRITIC, self._rank, self._parts)

    def restore(self, source: SnapshotSource) -> None:
        """Go on from a checkpoint; all ranks must call it."""
        restore_snapshot(self._trainable.engine, CRITIC, self._rank, self._parts, source)

    def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    @ray.method(concurrency_group=HEALTH)
    def ping(self) -> None:
        """Answer, also while there is work: a sign of life."""

    def resident_mb(self) -> float:
        """Memory of this worker, in MB."""
        return process_tree_mb()
