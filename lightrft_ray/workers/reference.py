"""The frozen reference model of the KL term."""

from collections.abc import Sequence

import numpy as np
import ray
import torch

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import load_policy
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.token_models import Sampling, TokenPolicy
from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.batches import RowBuilder
from lightrft_ray.workers.devices import model_source, prepare_device
from lightrft_ray.workers.liveness import HEALTH
from lightrft_ray.workers.messages import GroupTokens
from lightrft_ray.workers.passes import score_actions
from lightrft_ray.workers.process_memory import process_tree_mb


@ray.remote(concurrency_groups={HEALTH: 1})  # type: ignore[call-overload]  # Ray's types lack it
class ReferenceWorker:
    """Log-probs of responses under the reference model."""

    def __init__(self, config: RunConfig, sampling: Sampling, pad_token_id: int) -> None:
        log_as_worker()
        self._activity = Activity()
        self._micro_batch_size = config.trainer.micro_rollout_batch_size
        self._sampling = sampling
        self._device = prepare_device(config, uses_gpu=config.placement.ref_num_gpus_per_node > 0)
        path = config.model.ref_pretrain or config.model.pretrain
        model = load_policy(model_source(config, path)).eval()
        self._policy = TokenPolicy(model).to(self._device)
        self._rows = RowBuilder(
            config.trainer.row_layout, position_rule(model.config), pad_token_id, self._device
        )

    def ready(self) -> None:
        """Return once the model is loaded."""

    @noted("score")
    def log_probs(self, groups: Sequence[GroupTokens]) -> np.ndarray:
        """Log-probs (M,) float32 of the response tokens, sample after sample."""
        return score_actions(
            groups,
            self._micro_batch_size,
            self._rows,
            lambda rows: self._policy(rows, self._sampling)[0],
        )

    def leave_device(self) -> None:
        """Let others have the device's memory."""
        self._policy.to("cpu")
        if self._device.type != "cpu":
            torch.cuda.empty_cache()

    def return_to_device(self) -> None:
        """Take the device's memory back."""
        self._policy.to(self._device)

    def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    @ray.method(concurrency_group=HEALTH)
    def ping(self) -> None:
        """Answer, also while there is work: a sign of life."""

    def resident_mb(self) -> float:
        """Memory of this worker, in MB."""
        return process_tree_mb()
