"""Settings of publication and colocation that contradict others: both are named, and a remedy."""

import pytest
from pydantic import ValidationError

from lightrft_ray.config import RunConfig

_LORA = {"model": {"lora_rank": 8}}


def _error(**sections: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(sections)
    (error,) = caught.value.errors()
    assert "\n" not in error["msg"]
    return error["msg"]


@pytest.mark.parametrize(
    ("sections", "parts"),
    [
        ({"sync": {"lora_sync": "adapter"}}, ["sync.lora_sync", "model.lora_rank to 1 or more"]),
        ({"model": {"lora_alpha": 32}}, ["model.lora_alpha", "model.lora_rank to 1 or more"]),
        ({"model": {"target_modules": ["q_proj"]}}, ["target_modules to null", "lora_rank to 1"]),
        (
            {"model": {"lora_rank": 1024}, "sync": {"lora_sync": "adapter"}},
            ["ranks up to 512", "sync.lora_sync to merged", "model.lora_rank to 512"],
        ),
        (
            {"checkpoint": {"save_hf_ckpt": True, "hf_lora": "adapter"}},
            ["checkpoint.hf_lora to merged", "model.lora_rank to 1 or more"],
        ),
        (
            {"model": {"lora_rank": 8}, "checkpoint": {"hf_lora": "adapter"}},
            ["checkpoint.hf_lora to merged", "checkpoint.save_hf_ckpt to true"],
        ),
        (
            {"model": {"lora_rank": 8, "freeze_patterns": ["*.norm.*"]}},
            ["model.freeze_patterns", "model.lora_rank to 0"],
        ),
    ],
)
def test_adapters(sections: dict[str, dict[str, object]], parts: list[str]) -> None:
    message = _error(**sections)
    assert all(part in message for part in parts), message


_GPUS = {"actor_num_gpus_per_node": 1, "vllm_use_gpu": True}
_SHARED = _GPUS | {"colocate": "learner_generator"}


@pytest.mark.parametrize("transport", ["nccl", "ipc"])
@pytest.mark.parametrize("gpus", [{}, {"vllm_use_gpu": True}, {"actor_num_gpus_per_node": 1}])
def test_a_transport_between_gpus_needs_them(transport: str, gpus: dict[str, object]) -> None:
    message = _error(sync={"transport": transport}, placement=gpus)
    assert f"sync.transport {transport} runs between GPUs" in message
    assert "set sync.transport to object_store" in message


def test_each_transport_has_its_placement() -> None:
    message = _error(sync={"transport": "nccl"}, placement=_SHARED)
    assert "sync.transport to ipc" in message and "placement.colocate to none" in message
    message = _error(sync={"transport": "ipc"}, placement=_GPUS)
    assert "sync.transport to nccl" in message
    assert "placement.colocate to learner_generator" in message


def test_adapters_alone_go_through_the_object_store() -> None:
    sync = {"transport": "nccl", "lora_sync": "adapter"}
    message = _error(sync=sync, placement=_GPUS, **_LORA)
    assert "sync.transport to object_store" in message and "sync.lora_sync to merged" in message


def test_what_agrees_is_taken() -> None:
    stage = {"trainer": {"zero_stage": 2}}
    RunConfig.model_validate({"sync": {"transport": "nccl"}, "placement": _GPUS})
    RunConfig.model_validate({"sync": {"transport": "ipc"}, "placement": _SHARED} | stage)
    RunConfig.model_validate({"sync": {"lora_sync": "adapter"}, **_LORA})
