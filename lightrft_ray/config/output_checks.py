"""Contradictions of settings with what a run writes, and where.

Each function raises a ValueError of one line that names the settings and the remedy.
"""

import os
from pathlib import Path

from lightrft_ray.config.checkpoint import CheckpointConfig
from lightrft_ray.config.data import DataConfig
from lightrft_ray.config.fields import reject_changed
from lightrft_ray.config.model import ModelConfig
from lightrft_ray.config.reward import RewardConfig

_EMBEDDED = "embedded:"  # such a name is no path; the data layer resolves it


def check_export(checkpoint: CheckpointConfig, model: ModelConfig) -> None:
    """Only adapters that there are can be written, and only by a run that asks for the folder."""
    name = "checkpoint.hf_lora"
    if model.lora_rank == 0:
        reject_changed(checkpoint, name, "model.lora_rank 0", "model.lora_rank to 1 or more")
    if not checkpoint.save_hf_ckpt:
        remedy = "checkpoint.save_hf_ckpt to true"
        reject_changed(checkpoint, name, "checkpoint.save_hf_ckpt false", remedy)


def check_overwriting(
    output_dir: str, model: ModelConfig, data: DataConfig, reward: RewardConfig
) -> None:
    """A run that replaces what is in its output folder must not read its input from there."""
    inputs = {
        "model.pretrain": model.pretrain,
        "model.ref_pretrain": model.ref_pretrain,
        "model.critic_pretrain": model.critic_pretrain,
        "data.eval_data": data.eval_data,
        "data.pretrain_data": data.pretrain_data,
    }
    functions = {f"reward.functions.{name}": each for name, each in reward.functions.items()}
    files = {"reward.reward_fn": reward.reward_fn}
    files |= {name: each.function for name, each in functions.items()}
    inputs |= {name: file for name, file in files.items() if file.endswith(".py")}
    models = {f"reward.models.{name}": each.pretrain for name, each in reward.models.items()}
    inputs |= models
    prompts = [("data.prompt_data", source) for source in data.prompt_sources]
    for name, path in (*inputs.items(), *prompts):
        if path is None or path.startswith(_EMBEDDED) or not _lies_in(path, output_dir):
            continue
        if (name.startswith("model.") or name in models) and _is_hub_name(path, output_dir):
            continue
        raise ValueError(
            f"overwrite_output true would delete the run's own input: {name} {path} lies in "
            f"output_dir {output_dir}: set output_dir to another folder, or overwrite_output "
            "to false"
        )


def check_resuming(checkpoint: CheckpointConfig) -> None:
    """A run that is replaced cannot be gone on with; `overwrite_output` is true."""
    if checkpoint.resume != "never":
        raise ValueError(
            f"overwrite_output true would remove what checkpoint.resume {checkpoint.resume} goes "
            "on from: set overwrite_output to false, or checkpoint.resume to never"
        )


def _lies_in(path: str, folder: str) -> bool:
    # Path.resolve raises on a loop of links, which is not for this check to report.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _is_hub_name(path: str, folder: str) -> bool:
    """Whether `path` lies in `folder` only as every name on the Hugging Face hub would."""
    is_local = Path(path).is_absolute() or path.startswith(".") or Path(path).exists()
    return not is_local and _lies_in(".", folder)
