"""A learner's end of vLLM's transports between GPUs: `nccl` and `ipc`.

All ranks hold one, as gathering weights and exchanging handles takes all of them; rank 0 alone
talks to the generators.
"""

import base64
import pickle
from collections.abc import Sequence
from typing import Any

from ray import ObjectRef
from ray.actor import ActorHandle
from torch import nn
from vllm.distributed.weight_transfer.base import (
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    WeightTransferUpdatePayload,
)
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

from lightrft_ray.config import RunConfig
from lightrft_ray.sync.policy_source import PolicySource
from lightrft_ray.workers.actor_group import wait_for
from lightrft_ray.workers.devices import torch_dtype


class WeightSender:
    """Sends the policy's weights to a fixed set of generators."""

    def __init__(
        self,
        config: RunConfig,
        model: nn.Module,
        rank: int,
        address: tuple[str, int],
        generators: Sequence[ActorHandle],
    ) -> None:
        """Meet the generators; rank 0 listens at `address`, where they come to with `nccl`."""
        self._client = GeneratorsClient(config, generators)
        source = PolicySource(model, config.sync.bucket_bytes, torch_dtype(config.generator_dtype))
        self._engine: TrainerWeightTransferEngine = WeightTransferTrainerFactory.trainer_init(
            init_info(config, rank, address), client=self._client, source=source
        )
        self._nbytes = sum(each.dtype.itemsize * _numel(each.shape) for each in source.metadata())

    def send(self, version: int) -> tuple[int, float]:
        """Have the generators load a weight version; bytes, and seconds that they were held."""
        self._client.version = version
        self._engine.send_weights()
        return self._nbytes, self._client.pause_seconds

    def close(self) -> None:
        """Leave the generators."""
        self._engine.shutdown()


def init_info(config: RunConfig, rank: int, address: tuple[str, int]) -> TrainerInitInfo:
    """How vLLM's trainer-side class of the run's transport is set up: packed in both cases."""
    packed_bytes = config.sync.bucket_bytes
    if config.sync.transport == "ipc":
        return IPCTrainerInitInfo(packed=True, packed_buffer_size_bytes=packed_bytes, rank=rank)
    rollout = config.rollout
    receivers = rollout.vllm_num_engines * rollout.vllm_tensor_parallel_size
    return NCCLTrainerInitInfo(
        *address, 1 + receivers, packed_buffer_size_bytes=packed_bytes, rank=rank
    )


class GeneratorsClient:
    """What vLLM's trainer-side classes ask of the generators; all are asked at once.

    Raises InfrastructureError after `sync.publish_timeout`.
    """

    def __init__(self, config: RunConfig, generators: Sequence[ActorHandle]) -> None:
        self._generators = list(generators)
        self._shards = config.rollout.vllm_tensor_parallel_size
        self._timeout = config.sync.publish_timeout
        self.version = 0
        self.pause_seconds = 0.0

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have them meet the trainer, each engine with ranks of its own."""
        self._wait(
            [
                generator.meet_learner.remote(of_engine(init_info, index, self._shards))
                for index, generator in enumerate(self._generators)
            ]
        )

    def start_weight_update(self) -> None:
        """Have them stop sampling."""
        self._wait([generator.start_update.remote() for generator in self._generators])

    def update_weights(self, update_info: WeightTransferUpdatePayload) -> None:
        """Have them receive what is being sent."""
        payload = plain_handles(update_info) if isinstance(update_info, dict) else update_info
        self._wait([generator.receive_update.remote(payload) for generator in self._generators])

    def finish_weight_update(self, weight_version: str | None = None) -> None:  # noqa: ARG002
        """Have them go on under the version that was set before."""
        finishing = [each.finish_update.remote(self.version) for each in self._generators]
        self.pause_seconds = max(self._wait(finishing))

    def _wait(self, references: Sequence[ObjectRef]) -> list[Any]:
        return wait_for(references, self._timeout, "a generator (receiving weights)")


def of_engine(init_info: dict[str, Any], index: int, shards: int) -> dict[str, Any]:
    """The same for the engine of this index: vLLM counts ranks as if there were one."""
    if "rank_offset" not in init_info:
        return init_info
    return init_info | {"rank_offset": init_info["rank_offset"] + index * shards}


def plain_handles(update_info: dict[str, Any]) -> dict[str, Any]:
    """CUDA's handles as text, as they reach an engine's processes through its messages."""
    handles = update_info.get("ipc_handles")
    if handles is None:
        return update_info
    pickled = base64.b64encode(pickle.dumps(handles)).decode()
    return update_info | {"ipc_handles": None, "ipc_handles_pickled": pickled}


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count
