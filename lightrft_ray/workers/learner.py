"""The policy learner: one data-parallel rank under DeepSpeed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import ray
import torch
from ray import ObjectRef
from ray.actor import ActorHandle
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import enable_gradient_checkpointing, load_policy
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import Rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy
from lightrft_ray.models.trained_part import leave_to_train
from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.sync.buckets import BucketSpec, pack_buckets
from lightrft_ray.sync.weight_source import (
    adapter_weights,
    full_state_dict,
    named_weights,
    published_weights,
)
from lightrft_ray.trainer.auxiliary_losses import demonstration_loss, router_balance_loss
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask
from lightrft_ray.trainer.metric_sums import Metrics, merge_metrics
from lightrft_ray.trainer.objectives import policy_objective
from lightrft_ray.trainer.off_policy import mismatch_metrics
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
from lightrft_ray.workers.devices import model_source, prepare_device, torch_dtype
from lightrft_ray.workers.liveness import HEALTH
from lightrft_ray.workers.messages import GroupTokens
from lightrft_ray.workers.passes import run_updates, score_actions
from lightrft_ray.workers.process_memory import process_tree_mb
from lightrft_ray.workers.random_state import RandomState
from lightrft_ray.workers.snapshot import (
    POLICY,
    Files,
    Snapshot,
    SnapshotSource,
    Stateful,
    restore_snapshot,
    take_snapshot,
)
from lightrft_ray.workers.weight_average import WeightAverage

if TYPE_CHECKING:
    from lightrft_ray.workers.weight_sender import WeightSender


@ray.remote(concurrency_groups={HEALTH: 1})  # type: ignore[call-overload]  # Ray's types lack it
class PolicyLearner:
    """Trains the policy and gives out its weights."""

    def __init__(self, config: RunConfig, sampling: Sampling, pad_token_id: int) -> None:
        log_as_worker()
        self._activity = Activity()
        self._config = config
        self._sender: WeightSender | None = None
        self._sampling = sampling
        self._pad_token_id = pad_token_id
        self._device = prepare_device(config, uses_gpu=config.placement.actor_num_gpus_per_node > 0)

    def address(self) -> tuple[str, int]:
        """Where this process can be met by the other ranks, if it is rank 0."""
        return free_address()

    def device_number(self) -> str:
        """The GPU of this process, as CUDA_VISIBLE_DEVICES names it."""
        return str(ray.get_runtime_context().get_accelerator_ids()["GPU"][0])

    def connect(self, group: ProcessGroup) -> None:
        """Meet the other ranks and load the model."""
        config = self._config
        self._rank = group.rank
        join_process_group(group, config, self._device)
        with sharded_loading(config):
            self._model = load_policy(model_source(config, config.model.pretrain))
        leave_to_train(self._model, config.model, config.seed)
        if config.model.gradient_checkpointing:
            enable_gradient_checkpointing(self._model)
        policy = TokenPolicy(self._model)
        self._trainable = TrainableModel(
            policy, config, config.trainer.actor_learning_rate, config.optimizer_steps
        )
        self._average = (
            WeightAverage(self._model, config.trainer.averaging_beta)
            if config.trainer.enable_ema
            else None
        )
        self._parts: dict[str, Stateful] = {"random_state": RandomState()}
        if self._average is not None:
            self._parts["average"] = self._average
        self._rows = RowBuilder(
            config.trainer.row_layout,
            position_rule(self._model.config),
            self._pad_token_id,
            self._device,
            blank_image_group(self._model, config, ranks=group.world_size),
        )

    @noted("train")
    def train(self, batches: Sequence[RankBatch]) -> tuple[Metrics, list[StepResult]]:
        """One optimizer step a batch; this rank's metrics and the results of all steps."""
        size = self._config.trainer.micro_train_batch_size
        return run_updates(
            self._trainable,
            batches,
            size,
            self._rows,
            self._objective,
            demonstration_objective=self._demonstration_objective,
            after_update=None if self._average is None else self._average.update,
        )

    def _objective(
        self, rows: Rows, experience: ExperienceVL, batch: RankBatch
    ) -> tuple[Tensor, Metrics]:
        algorithm = self._config.algorithm
        log_probs, entropy, *router_losses = self._trainable.engine(
            rows,
            self._sampling,
            trains_entropy=algorithm.entropy_coef > 0,
            with_router_loss=algorithm.aux_loss_coef > 0,
        )
        loss, metrics = policy_objective(
            log_probs,
            entropy,
            experience,
            algorithm,
            denominators=batch.denominators,
            kl_coef=batch.kl_coef,
        )
        if batch.is_first and algorithm.old_log_probs == "rollout":
            # In a synchronous run, the policy is still the one that was sampled from.
            metrics |= mismatch_metrics(
                log_probs, experience.action_log_probs, required_mask(experience)
            )
        for router_loss in router_losses:
            balance, measured = router_balance_loss(
                router_loss,
                coef=algorithm.aux_loss_coef,
                n_samples=len(rows.action_mask),
                step_samples=self._config.trainer.train_batch_size,
                denominators=batch.denominators,
            )
            loss, metrics = loss + balance, merge_metrics(metrics, measured)
        return loss, metrics

    def _demonstration_objective(self, rows: Rows, batch: RankBatch) -> tuple[Tensor, Metrics]:
        """Of the model's plain distribution: demonstrations are not sampled."""
        if batch.demonstrations is None:
            raise ValueError("the batch has no demonstrations")
        log_probs, _ = self._trainable.engine(rows, Sampling())
        return demonstration_loss(
            log_probs,
            rows.action_mask,
            coef=self._config.algorithm.demonstration_coef,
            n_tokens=batch.demonstrations.n_tokens,
            denominators=batch.denominators,
        )

    @noted("score")
    def log_probs(
        self, groups: Sequence[GroupTokens], sampling: Sampling | None = None
    ) -> np.ndarray:
        """Log-probs (M,) float32 of the response tokens, sample after sample.

        `sampling` None is the distribution that the rollouts are sampled from. A collective under
        ZeRO-3: every rank must call it with as many micro-batches.
        """
        return self._score(groups, sampling or self._sampling)[0]

    @noted("score")
    def log_probs_and_entropy(self, groups: Sequence[GroupTokens]) -> np.ndarray:
        """As `log_probs`, with the entropies in a second row: (2, M) float32."""
        return self._score(groups, self._sampling)

    @noted("observe")
    def observe(self, groups: Sequence[GroupTokens]) -> np.ndarray:
        """As `log_probs_and_entropy`, of samples that a person is to be shown."""
        return self._score(groups, self._sampling)

    def _score(self, groups: Sequence[GroupTokens], sampling: Sampling) -> np.ndarray:
        self._trainable.engine.eval()
        return score_actions(
            groups,
            self._config.trainer.micro_rollout_batch_size,
            self._rows,
            lambda rows: torch.stack(self._trainable.engine(rows, sampling)),
        )

    @noted("publish")
    def export_weights(self) -> list[tuple[BucketSpec, ObjectRef]]:
        """What trains of the policy, as buckets in the object store; on ranks but 0 an empty list.

        A collective under ZeRO-3: all ranks must call it.
        """
        config = self._config
        bucket_bytes = config.sync.bucket_bytes
        chosen = adapter_weights if config.sync.lora_sync == "adapter" else published_weights
        weights = chosen(self._model, bucket_bytes, torch_dtype(config.generator_dtype))
        if self._rank > 0:
            for _ in weights:
                pass
            return []
        return [(spec, ray.put(parts)) for spec, parts in pack_buckets(weights, bucket_bytes)]

    def meet_generators(self, address: tuple[str, int], generators: Sequence[ActorHandle]) -> None:
        """Connect the transport between GPUs anew; all ranks must call it."""
        from lightrft_ray.workers.weight_sender import WeightSender  # only here vLLM is needed

        if self._sender is not None:
            self._sender.close()
        self._sender = WeightSender(self._config, self._model, self._rank, address, generators)

    @noted("publish")
    def send_weights(self, version: int) -> tuple[int, float]:
        """Send what trains; bytes, and seconds that generators were held. A collective."""
        if self._sender is None:
            raise ValueError("the learner has not met the generators")
        return self._sender.send(version)

    def swap_average(self) -> None:
        """Take the average of the weights in place of those that train, or these back.

        All ranks must call it; between two calls the policy must not be trained.
        """
        if self._average is None:
            raise ValueError("trainer.enable_ema is false: there is no average of the weights")
        self._average.swap()

    def save_pretrained(self, folder: str) -> None:
        """Write the policy as a Hugging Face checkpoint (rank 0); all ranks must call it.

        With `trainer.enable_ema` it holds the average of the weights.
        """
        if self._average is None:
            self._write_checkpoint(folder)
            return
        self._average.swap()
        self._write_checkpoint(folder)
        self._average.swap()

    def _write_checkpoint(self, folder: str) -> None:
        weights = named_weights(self._model, self._config.sync.bucket_bytes)
        state = full_state_dict(weights, keep=self._rank == 0)
        if self._rank == 0:
            self._model.save_pretrained(folder, state_dict=state)

    def leave_device(self, keeps_weights: bool = False) -> None:
        """Let others have the device's memory; weights may be kept."""
        self._trainable.leave_device(keeps_weights=keeps_weights)

    def return_to_device(self) -> None:
        """Take the device's memory back."""
        self._trainable.return_to_device()

    @ray.method(num_returns=2)
    def snapshot(self) -> tuple[Files, Snapshot]:
        """This rank's part of a checkpoint; all ranks must call it."""
        with self._activity.phase("save"):
            return take_snapshot(self._trainable.engine, POLICY, self._rank, self._parts)

    def restore(self, source: SnapshotSource) -> None:
        """Go on from a checkpoint, whatever was being done; all ranks must call it."""
        if self._average is not None:
            self._average.swap_back()
        restore_snapshot(self._trainable.engine, POLICY, self._rank, self._parts, source)

    def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    @ray.method(concurrency_group=HEALTH)
    def ping(self) -> None:
        """Answer, also while there is work: a sign of life."""

    def resident_mb(self) -> float:
        """Memory of this worker, in MB."""
        return process_tree_mb()
