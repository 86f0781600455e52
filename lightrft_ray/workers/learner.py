"""The policy learner: one data-parallel rank under DeepSpeed."""

from collections.abc import Sequence

import numpy as np
import ray
import torch
from ray import ObjectRef
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import enable_gradient_checkpointing, load_policy
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import Rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy
from lightrft_ray.sync.buckets import BucketSpec, pack_buckets
from lightrft_ray.sync.weight_source import full_state_dict, named_weights
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask
from lightrft_ray.trainer.metric_sums import Metrics
from lightrft_ray.trainer.objectives import policy_objective
from lightrft_ray.trainer.off_policy import mismatch_metrics
from lightrft_ray.workers.batches import RankBatch, RowBuilder
from lightrft_ray.workers.deepspeed_engine import (
    ProcessGroup,
    StepResult,
    TrainableModel,
    free_address,
    join_process_group,
    sharded_loading,
)
from lightrft_ray.workers.devices import model_source, prepare_device
from lightrft_ray.workers.messages import GroupTokens
from lightrft_ray.workers.passes import run_updates, score_actions
from lightrft_ray.workers.process_memory import process_tree_mb
from lightrft_ray.workers.random_state import RandomState
from lightrft_ray.workers.snapshot import (
    POLICY,
    Files,
    Snapshot,
    SnapshotSource,
    restore_snapshot,
    take_snapshot,
)

_MB = 10**6


@ray.remote
class PolicyLearner:
    """Trains the policy and gives out its weights."""

    def __init__(self, config: RunConfig, sampling: Sampling, pad_token_id: int) -> None:
        self._config = config
        self._sampling = sampling
        self._pad_token_id = pad_token_id
        self._device = prepare_device(config, uses_gpu=config.placement.actor_num_gpus_per_node > 0)

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
            self._model = load_policy(model_source(config, config.model.pretrain))
        if config.model.gradient_checkpointing:
            enable_gradient_checkpointing(self._model)
        policy = TokenPolicy(self._model)
        self._trainable = TrainableModel(
            policy, config, config.trainer.actor_learning_rate, config.optimizer_steps
        )
        self._rows = RowBuilder(
            config.trainer.row_layout,
            position_rule(self._model.config),
            self._pad_token_id,
            self._device,
        )

    def train(self, batches: Sequence[RankBatch]) -> tuple[Metrics, list[StepResult]]:
        """One optimizer step a batch; this rank's metrics and the results of all steps."""
        size = self._config.trainer.micro_train_batch_size
        return run_updates(self._trainable, batches, size, self._rows, self._objective)

    def _objective(
        self, rows: Rows, experience: ExperienceVL, batch: RankBatch
    ) -> tuple[Tensor, Metrics]:
        trains_entropy = self._config.algorithm.entropy_coef > 0
        log_probs, entropy = self._trainable.engine(
            rows, self._sampling, trains_entropy=trains_entropy
        )
        loss, metrics = policy_objective(
            log_probs,
            entropy,
            experience,
            self._config.algorithm,
            denominators=batch.denominators,
            kl_coef=batch.kl_coef,
        )
        if batch.is_first and self._config.algorithm.old_log_probs == "rollout":
            # The policy is still the one that was sampled from.
            metrics |= mismatch_metrics(
                log_probs, experience.action_log_probs, required_mask(experience)
            )
        return loss, metrics

    def log_probs(
        self, groups: Sequence[GroupTokens], sampling: Sampling | None = None
    ) -> np.ndarray:
        """Log-probs (M,) float32 of the response tokens, sample after sample.

        `sampling` None is the distribution that the rollouts are sampled from. A collective under
        ZeRO-3: every rank must call it with as many micro-batches.
        """
        self._trainable.engine.eval()
        size = self._config.trainer.micro_rollout_batch_size
        distribution = sampling or self._sampling
        return score_actions(
            groups, size, self._rows, lambda rows: self._trainable.engine(rows, distribution)[0]
        )

    def log_probs_and_entropy(self, groups: Sequence[GroupTokens]) -> np.ndarray:
        """As `log_probs`, with the entropies in a second row: (2, M) float32."""
        self._trainable.engine.eval()
        size = self._config.trainer.micro_rollout_batch_size
        return score_actions(
            groups,
            size,
            self._rows,
            lambda rows: torch.stack(self._trainable.engine(rows, self._sampling)),
        )

    def export_weights(self) -> list[tuple[BucketSpec, ObjectRef]]:
        """The policy's weights as buckets in the object store; on ranks but 0 an empty list.

        A collective under ZeRO-3: all ranks must call it.
        """
        bucket_bytes = self._config.sync.bucket_mb * _MB
        weights = named_weights(self._model, bucket_bytes)
        if self._rank > 0:
            for _ in weights:
                pass
            return []
        return [(spec, ray.put(data)) for spec, data in pack_buckets(weights, bucket_bytes)]

    def save_pretrained(self, folder: str) -> None:
        """Write the policy as a Hugging Face checkpoint (rank 0); all ranks must call it."""
        weights = named_weights(self._model, self._config.sync.bucket_mb * _MB)
        state = full_state_dict(weights, keep=self._rank == 0)
        if self._rank == 0:
            self._model.save_pretrained(folder, state_dict=state)

    @ray.method(num_returns=2)
    def snapshot(self) -> tuple[Files, Snapshot]:
        """This rank's part of a checkpoint; all ranks must call it."""
        return take_snapshot(self._trainable.engine, POLICY, self._rank, self._parts)

    def restore(self, source: SnapshotSource) -> None:
        """Go on from a checkpoint; all ranks must call it."""
        restore_snapshot(self._trainable.engine, POLICY, self._rank, self._parts, source)

    def resident_mb(self) -> float:
        """Memory of this worker, in MB."""
        return process_tree_mb()
