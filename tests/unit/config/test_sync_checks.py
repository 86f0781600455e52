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
