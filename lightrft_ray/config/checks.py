"""Contradictions between settings of several sections.

Each function raises a ValueError of one line that names the settings and the remedy; pydantic
hands it on as part of its ValidationError.
"""

import os
from collections.abc import Mapping, Sequence
from math import gcd, lcm
from pathlib import Path

from lightrft_ray.config.algorithm import GROUP_ESTIMATORS, AlgorithmConfig
from lightrft_ray.config.checkpoint import CheckpointConfig
from lightrft_ray.config.reward import RewardConfig
from lightrft_ray.config.sections import (
    DataConfig,
    ModelConfig,
    PlacementConfig,
    RolloutConfig,
    TrainerConfig,
)

_EMBEDDED = "embedded:"  # such a name is no path; the data layer resolves it


def check_group_size(rollout: RolloutConfig, algorithm: AlgorithmConfig) -> None:
    """A group of one sample has nothing to be compared with: its advantage is always 0."""
    estimator = algorithm.advantage_estimator
    if estimator in GROUP_ESTIMATORS and rollout.n_samples_per_prompt < 2:
        raise ValueError(
            f"algorithm.advantage_estimator {estimator} compares the samples of one prompt: set "
            "rollout.n_samples_per_prompt to 2 or more, or algorithm.advantage_estimator to gae"
        )


def check_auxiliary_models(model: ModelConfig, algorithm: AlgorithmConfig) -> None:
    """A checkpoint named for a model that the run does not use is a misunderstanding."""
    if model.ref_pretrain is not None and algorithm.init_kl_coef == 0:
        raise ValueError(
            "model.ref_pretrain is set but algorithm.init_kl_coef 0 uses no reference: "
            "set algorithm.init_kl_coef above 0, or model.ref_pretrain to null"
        )
    if model.critic_pretrain is not None and algorithm.advantage_estimator != "gae":
        raise ValueError(
            "model.critic_pretrain is set but algorithm.advantage_estimator "
            f"{algorithm.advantage_estimator} uses no critic: "
            "set algorithm.advantage_estimator to gae, or model.critic_pretrain to null"
        )


def check_kl(algorithm: AlgorithmConfig) -> None:
    """Settings of a KL term that the run does not have, or of a controller that it does not have.

    The KL is a part of the loss or of the reward by one switch, so that it can never be in both.
    """
    if algorithm.init_kl_coef == 0:
        for name in ("kl_estimator", "use_kl_loss", "kl_target"):
            default = AlgorithmConfig.model_fields[name].default
            if getattr(algorithm, name) != default:
                raise ValueError(
                    f"algorithm.{name} does nothing with algorithm.init_kl_coef 0: set "
                    f"algorithm.init_kl_coef above 0, or leave algorithm.{name} out"
                )
    if algorithm.kl_horizon is not None and algorithm.kl_target is None:
        raise ValueError(
            "algorithm.kl_horizon does nothing without algorithm.kl_target: set "
            "algorithm.kl_target, or algorithm.kl_horizon to null"
        )


def check_shaping(reward: RewardConfig, rollout: RolloutConfig, algorithm: AlgorithmConfig) -> None:
    """Shaping that cannot be computed, or that the advantages undo."""
    buffer, longest = reward.overlong_buffer_len, rollout.generate_max_len
    if buffer is not None and buffer > longest:
        raise ValueError(
            f"reward.overlong_buffer_len {buffer} is longer than a response can be: set it to "
            f"rollout.generate_max_len {longest} or less"
        )
    if reward.reward_running_norm != "none" and algorithm.advantage_estimator == "group_norm":
        raise ValueError(
            f"reward.reward_running_norm {reward.reward_running_norm} does nothing with "
            "algorithm.advantage_estimator group_norm, which divides by the deviation in the "
            "group: set reward.reward_running_norm to none, or the estimator to dr_grpo"
        )


def check_attention(model: ModelConfig, placement: PlacementConfig, groups: Sequence[str]) -> None:
    """FlashAttention runs on GPUs only; `groups` are the used ones of actor, critic and ref."""
    if model.attn_implementation != "flash_attention_2":
        return
    for group in groups:
        gpus = f"{group}_num_gpus_per_node"
        if getattr(placement, gpus) == 0:
            raise ValueError(
                f"model.attn_implementation flash_attention_2 needs GPUs: set placement.{gpus} "
                "to 1 or more, or model.attn_implementation to sdpa"
            )


def check_row_layout(model: ModelConfig, trainer: TrainerConfig) -> None:
    """FlashAttention knows causal and padded rows, and not which samples share a prompt."""
    flash = model.attn_implementation == "flash_attention_2"
    if flash and trainer.row_layout == "shared_prefix":
        raise ValueError(
            "model.attn_implementation flash_attention_2 cannot run trainer.row_layout "
            "shared_prefix: set trainer.row_layout to padded, or model.attn_implementation to sdpa"
        )


def check_cpu_ranks(placement: PlacementConfig, groups: Sequence[str]) -> None:
    """CPU ranks are for a learner or a critic without GPUs; `groups` as in `check_attention`."""
    trained = [group for group in groups if group in ("actor", "critic")]
    all_on_gpus = all(getattr(placement, f"{group}_num_gpus_per_node") > 0 for group in trained)
    if placement.cpu_learner_ranks > 1 and all_on_gpus:
        raise ValueError(
            "placement.cpu_learner_ranks does nothing with GPUs: "
            "set placement.actor_num_gpus_per_node to 0, or placement.cpu_learner_ranks to 1"
        )


def check_train_batch(
    samples_per_step: int, trainer: TrainerConfig, ranks: Mapping[str, int]
) -> None:
    """A step divides into optimizer steps, and each over the ranks of those that are trained.

    `ranks` counts the processes of the learner and, where the run has one, of the critic.
    """
    batch = trainer.train_batch_size
    if samples_per_step % batch:
        raise ValueError(
            "rollout.rollout_batch_size x rollout.n_samples_per_prompt is "
            f"{samples_per_step} samples a step, no multiple of trainer.train_batch_size {batch}: "
            f"set trainer.train_batch_size to a divisor of {samples_per_step}"
        )
    for role, count in ranks.items():
        if batch % count:
            raise ValueError(
                f"trainer.train_batch_size {batch} does not divide over {count} {role} ranks "
                f"(placement): set trainer.train_batch_size to a multiple of {lcm(*ranks.values())}"
            )


def check_micro_batch(trainer: TrainerConfig, ranks: Mapping[str, int]) -> None:
    """A rank's share of an optimizer step divides into micro-batches; `ranks` as above."""
    batch, micro = trainer.train_batch_size, trainer.micro_train_batch_size
    common = gcd(*(batch // count for count in ranks.values()))
    for role, count in ranks.items():
        share = batch // count
        if share % micro:
            largest = next(size for size in range(min(micro, common), 0, -1) if common % size == 0)
            raise ValueError(
                f"trainer.micro_train_batch_size {micro} does not divide a rank's share of "
                f"{share} samples (trainer.train_batch_size {batch} over {count} {role} ranks): "
                f"set trainer.micro_train_batch_size to {largest}"
            )


def check_critic_warmup(trainer: TrainerConfig, algorithm: AlgorithmConfig) -> None:
    """There must be a critic to warm up, and a step left for the policy."""
    warmup, steps = trainer.critic_warmup_steps, trainer.num_steps
    if warmup > 0 and algorithm.advantage_estimator != "gae":
        raise ValueError(
            f"trainer.critic_warmup_steps {warmup} is set but algorithm.advantage_estimator "
            f"{algorithm.advantage_estimator} uses no critic: set "
            "algorithm.advantage_estimator to gae, or trainer.critic_warmup_steps to 0"
        )
    if warmup >= steps:
        raise ValueError(
            f"trainer.critic_warmup_steps {warmup} leaves the policy none of "
            f"trainer.num_steps {steps}: set trainer.critic_warmup_steps below {steps}"
        )


def check_warmup(trainer: TrainerConfig, optimizer_steps: int) -> None:
    """A warm-up as long as the run never reaches the learning rate that was asked for."""
    if trainer.lr_warmup_steps >= optimizer_steps:
        raise ValueError(
            f"trainer.lr_warmup_steps {trainer.lr_warmup_steps} leaves none of the run's "
            f"{optimizer_steps} optimizer steps (trainer.num_steps {trainer.num_steps}): "
            f"set trainer.lr_warmup_steps below {optimizer_steps}"
        )


def check_overwriting(output_dir: str, model: ModelConfig, data: DataConfig) -> None:
    """A run that replaces what is in its output folder must not read its input from there."""
    inputs = {
        "model.pretrain": model.pretrain,
        "model.ref_pretrain": model.ref_pretrain,
        "model.critic_pretrain": model.critic_pretrain,
        "data.prompt_data": data.prompt_data,
        "data.eval_data": data.eval_data,
    }
    for name, path in inputs.items():
        if path is None or path.startswith(_EMBEDDED) or not _lies_in(path, output_dir):
            continue
        if name.startswith("model.") and _is_hub_name(path, output_dir):
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
