"""How vLLM's trainer-side classes are set up for a run, and what generators are told."""

import base64
import pickle

from vllm.distributed.weight_transfer.ipc_engine import (
    IPCTrainerInitInfo,
    IPCWeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

from lightrft_ray.config import RunConfig
from lightrft_ray.workers.weight_sender import init_info, of_engine, plain_handles

_GPUS = {"actor_num_gpus_per_node": 4, "vllm_use_gpu": True}
_SMALL = {"micro_train_batch_size": 16}


def test_nccl_is_packed_and_counts_every_receiver() -> None:
    config = RunConfig.model_validate(
        {
            "sync": {"transport": "nccl", "bucket_mb": 64},
            "placement": _GPUS,
            "trainer": _SMALL,
            "rollout": {"vllm_num_engines": 3, "vllm_tensor_parallel_size": 2},
        }
    )
    info = init_info(config, 1, ("10.0.0.1", 4000))
    assert isinstance(info, NCCLTrainerInitInfo)
    assert (info.master_address, info.master_port, info.world_size) == ("10.0.0.1", 4000, 7)
    assert info.packed and info.packed_buffer_size_bytes == 64_000_000
    assert not info.is_sender


def test_each_engine_has_ranks_of_its_own() -> None:
    sent = {"rank_offset": 1, "world_size": 7}
    assert [of_engine(sent, index, 2)["rank_offset"] for index in range(3)] == [1, 3, 5]
    assert of_engine({"packed": True}, 1, 2) == {"packed": True}


def test_ipc_is_packed() -> None:
    config = RunConfig.model_validate(
        {
            "sync": {"transport": "ipc"},
            "placement": _GPUS | {"colocate": "learner_generator"},
            "trainer": _SMALL | {"zero_stage": 2},
            "rollout": {"vllm_num_engines": 4},
        }
    )
    info = init_info(config, 0, ("", 0))
    assert isinstance(info, IPCTrainerInitInfo)
    assert info.packed and info.is_sender


def test_handles_travel_as_text() -> None:
    sent = {"names": ["w"], "dtype_names": ["float32"], "shapes": [[2]], "tensor_sizes": [8]}
    handles = {"GPU-1": (1, b"x", (2,))}
    payload = plain_handles(sent | {"ipc_handles": handles})
    assert payload["ipc_handles"] is None
    assert pickle.loads(base64.b64decode(payload["ipc_handles_pickled"])) == handles
    assert plain_handles(sent) == sent
    assert IPCWeightTransferUpdateInfo(**sent, ipc_handles=handles).ipc_handles == handles
