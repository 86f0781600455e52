"""How actors and critics get their model: load it or take it, and add adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.families import (
    check_packable,
    config_of,
    forbidden_token_ids,
    unwrapped,
)
from lightrft_ray.models.loading import ModelSource
from lightrft_ray.models.lora import LoraSettings, add_lora
from lightrft_ray.models.token_models import Sampling


@dataclass(frozen=True)
class ModelOptions:
    """Further keywords of actors and critics; others are a TypeError.

    `temperature` and `forbidden_token_ids` (None: the model's media placeholders) say which
    distribution log-probs are of. A `high_entropy_token_ratio` above 0 adds `action_entropy` to
    the output. `lora_vision_tower` gives adapters to the vision tower, too.
    """

    load_in_4bit: bool = False
    trust_remote_code: bool = False
    temperature: float = 1.0
    forbidden_token_ids: Sequence[int] | None = None
    high_entropy_token_ratio: float = 0.0
    lora_vision_tower: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError(f"temperature {self.temperature}: it must be above 0")
        if not 0 <= self.high_entropy_token_ratio <= 1:
            ratio = self.high_entropy_token_ratio
            raise UserError(f"high_entropy_token_ratio {ratio}: it must be between 0 and 1")


@dataclass(frozen=True)
class ModelSetup:
    """The documented arguments that say how a model is made."""

    use_flash_attention_2: bool
    bf16: bool
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    target_modules: Sequence[str] | None
    ds_config: dict[str, object] | None
    device_map: dict[str, int | str] | str | None
    packing_samples: bool
    options: ModelOptions


def build_model(
    pretrain_or_model: str | nn.Module,
    setup: ModelSetup,
    load: Callable[[ModelSource], PreTrainedModel],
) -> nn.Module:
    """The model, with adapters where wanted. A given module keeps its type and its device.

    Raises UserError for arguments that cannot be honoured.
    """
    if isinstance(pretrain_or_model, str):
        _check_flash_attention(setup)
        _check_placement(setup)
        with _sharded_by(setup.ds_config):
            model: nn.Module = load(_source(pretrain_or_model, setup))
    else:
        _check_takes_no_loading(setup)
        model = pretrain_or_model
    if setup.packing_samples:
        check_packable(model)
    return _with_adapters(model, setup)


def sampled_by(model: nn.Module, options: ModelOptions) -> Sampling:
    """The distribution that the options mean for this model."""
    forbidden = options.forbidden_token_ids
    if forbidden is None:
        config = config_of(unwrapped(model))
        forbidden = () if config is None else forbidden_token_ids(config)
    return Sampling(options.temperature, tuple(forbidden))


def _with_adapters(model: nn.Module, setup: ModelSetup) -> nn.Module:
    if setup.lora_rank == 0:
        if setup.target_modules is not None:
            raise UserError("target_modules do nothing with lora_rank 0: set lora_rank above 0")
        return model
    if not isinstance(model, PreTrainedModel):
        raise UserError(f"lora_rank needs a Hugging Face model, not a {type(model).__name__}")
    settings = LoraSettings(
        setup.lora_rank,
        setup.lora_alpha,
        setup.lora_dropout,
        setup.target_modules,
        setup.options.lora_vision_tower,
    )
    return add_lora(model, settings)


def _source(path: str, setup: ModelSetup) -> ModelSource:
    return ModelSource(
        path,
        dtype=torch.bfloat16 if setup.bf16 else torch.float32,
        attn_implementation="flash_attention_2" if setup.use_flash_attention_2 else "sdpa",
        trust_remote_code=setup.options.trust_remote_code,
        device_map=setup.device_map,
        load_in_4bit=setup.options.load_in_4bit,
    )


def _check_flash_attention(setup: ModelSetup) -> None:
    if not setup.use_flash_attention_2:
        return
    if not torch.cuda.is_available():
        raise UserError("use_flash_attention_2 needs CUDA, which this process has not")
    if not is_flash_attn_2_available():
        raise UserError("use_flash_attention_2 needs the package flash-attn: install the extra gpu")
    if not setup.bf16:
        raise UserError("use_flash_attention_2 has no float32 kernels: set bf16 to true")


def _check_placement(setup: ModelSetup) -> None:
    zero = (setup.ds_config or {}).get("zero_optimization")
    shards = isinstance(zero, dict) and zero.get("stage") == 3
    if shards and setup.device_map is not None:
        raise UserError(
            "device_map places whole layers, and ds_config (ZeRO stage 3) shards them: "
            "leave one out"
        )
    if shards and setup.options.load_in_4bit:
        raise UserError(
            "load_in_4bit: ZeRO stage 3 (ds_config) cannot shard quantized weights; use stage 2"
        )


def _check_takes_no_loading(setup: ModelSetup) -> None:
    unused = {
        "use_flash_attention_2": setup.use_flash_attention_2,
        "load_in_4bit": setup.options.load_in_4bit,
        "ds_config": setup.ds_config is not None,
        "device_map": setup.device_map is not None,
    }
    for name, is_set in unused.items():
        if is_set:
            raise UserError(f"{name} says how to load a model, but a loaded module was given")


@contextmanager
def _sharded_by(ds_config: dict[str, object] | None) -> Iterator[None]:
    """Under a ZeRO-3 configuration models are sharded as they are read, never whole anywhere."""
    if ds_config is None:
        yield
        return
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    # transformers finds the settings through a weak reference: keep it alive until all is loaded.
    settings = HfDeepSpeedConfig(ds_config)
    yield
    del settings
