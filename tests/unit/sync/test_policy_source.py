"""What is declared to vLLM's transports is what is then sent, element for element."""

from collections.abc import Callable

import pytest
import torch
from tiny_models import expert_model, text_model, vision_model
from transformers import PreTrainedModel

from lightrft_ray.config import ModelConfig
from lightrft_ray.models.trained_part import leave_to_train
from lightrft_ray.sync.policy_source import PolicySource


@pytest.mark.parametrize("make", [text_model, vision_model, expert_model])
@pytest.mark.parametrize(
    "trained", [{}, {"lora_rank": 2}, {"freeze_patterns": ("*.layers.0.*",)}], ids=str
)
def test_metadata_agrees_with_iteration(
    make: Callable[[], PreTrainedModel], trained: dict[str, object]
) -> None:
    model = make()
    leave_to_train(model, ModelConfig.model_validate(trained), seed=0)
    source = PolicySource(model, 10**4, torch.bfloat16)
    for _ in range(2):
        declared = [(each.name, each.dtype, each.shape) for each in source.metadata()]
        sent = [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in source]
        assert declared == sent
        assert {dtype for _, dtype, _ in sent} == {torch.bfloat16}
