"""Loading Hugging Face checkpoints as policies and as backbones of critics."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import constants, get_session, try_to_load_from_cache
from torch import nn
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.auto_factory import _BaseAutoModelClass

from lightrft_ray.config.errors import UserError

_HUB_TIMEOUT = 5.0  # s


@dataclass(frozen=True)
class ModelSource:
    """A checkpoint and how to load it: `path` is a folder or a Hugging Face name."""

    path: str
    dtype: torch.dtype = torch.float32
    attn_implementation: str = "sdpa"
    trust_remote_code: bool = False
    device_map: dict[str, int | str] | str | None = None
    load_in_4bit: bool = False


def load_config(source: ModelSource, setting: str = "model.pretrain") -> PretrainedConfig:
    """The checkpoint's configuration.

    Raises UserError that names the `setting` where there is no checkpoint.
    """
    _check_exists(source.path, setting)
    try:
        return AutoConfig.from_pretrained(source.path, trust_remote_code=source.trust_remote_code)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise UserError(f"{setting} {source.path}: cannot be read: {first_line}") from error


def _check_exists(path: str, setting: str) -> None:
    """Say at once that a folder is missing; transformers retries the hub for minutes."""
    folder = Path(path)
    if (folder / "config.json").is_file():
        return
    is_hub_name = not folder.exists() and re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", path)
    if not is_hub_name:
        raise UserError(
            f"{setting} {path}: no checkpoint there (no config.json); "
            "give a Hugging Face folder or name"
        )
    is_cached = try_to_load_from_cache(path, "config.json") is not None
    if not is_cached and not _hub_answers():
        raise UserError(
            f"{setting} {path}: no such folder, and as a Hugging Face name it is not in the local "
            "cache while the hub cannot be reached; give an existing folder"
        )


def _hub_answers() -> bool:
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT)
    except Exception:  # of whatever HTTP library the hub's client uses: all mean no answer
        return False
    return True


def sees_images(config: PretrainedConfig) -> bool:
    """Whether the checkpoint is a vision-language model."""
    return type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


def sees_videos(config: PretrainedConfig) -> bool:
    """Whether it also has a token that stands for a video."""
    names = ("video_token_id", "video_token_index")
    return sees_images(config) and any(getattr(config, name, None) is not None for name in names)


def load_policy(source: ModelSource) -> PreTrainedModel:
    """The language model with its head, vision tower included where there is one."""
    return _loaded(_policy_loader(load_config(source)), source)


def policy_without_weights(source: ModelSource) -> PreTrainedModel:
    """The same model on the meta device: its names and shapes alone."""
    config = load_config(source)
    with torch.device("meta"):
        return _policy_loader(config).from_config(
            config, trust_remote_code=source.trust_remote_code
        )


def _policy_loader(config: PretrainedConfig) -> type[_BaseAutoModelClass]:
    return AutoModelForImageTextToText if sees_images(config) else AutoModelForCausalLM


def load_backbone(source: ModelSource) -> PreTrainedModel:
    """The model without its language-model head, vision tower included where there is one."""
    load_config(source)
    return _loaded(AutoModel, source)


def _loaded(loader: type[_BaseAutoModelClass], source: ModelSource) -> PreTrainedModel:
    """The model; UserError for weights that the checkpoint lacks: they would be random."""
    model, info = loader.from_pretrained(source.path, output_loading_info=True, **_options(source))
    missing = sorted(info["missing_keys"])
    if missing:
        raise UserError(
            f"model {source.path}: the checkpoint lacks {len(missing)} weights, as {missing[0]}; "
            f"it is not a whole {type(model).__name__}"
        )
    if source.attn_implementation == "flex_attention":
        # For the language model's rows; a vision tower keeps SDPA.
        model.get_decoder().config._attn_implementation = "flex_attention"
    return model


def hidden_size(config: PretrainedConfig) -> int:
    """Width of the language model's hidden states."""
    return getattr(config, "text_config", config).hidden_size


def _options(source: ModelSource) -> dict[str, object]:
    is_flex = source.attn_implementation == "flex_attention"
    return {
        "dtype": source.dtype,
        "attn_implementation": "sdpa" if is_flex else source.attn_implementation,
        "trust_remote_code": source.trust_remote_code,
        "device_map": source.device_map,
        "quantization_config": _four_bits(source.dtype) if source.load_in_4bit else None,
    }


def _four_bits(compute_dtype: torch.dtype) -> BitsAndBytesConfig:
    """NF4 weights (Dettmers et al. 2023, 2305.14314)."""
    if not torch.cuda.is_available():
        raise UserError("load_in_4bit needs CUDA, which this process has not: set it to false")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
    )


def enable_gradient_checkpointing(model: PreTrainedModel) -> None:
    """Recompute activations in the backward pass (the non-reentrant kind, as DeepSpeed needs)."""
    model.gradient_checkpointing_enable({"use_reentrant": False})


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that the optimizer updates."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def trainable_summary(model: nn.Module) -> str:
    """How many parameters train, of how many; counts whole ones under ZeRO-3."""
    sizes = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in model.parameters()]
    total = sum(size for size, _ in sizes)
    trained = sum(size for size, trains in sizes if trains)
    share = 100 * trained / max(total, 1)
    return f"trainable params: {trained:,} || all params: {total:,} || trainable%: {share:.2f}"
