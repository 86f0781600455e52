"""Contradictions between settings of several sections.

Each function raises a ValueError of one line that names the settings and the remedy; pydantic
hands it on as part of its ValidationError.
"""

from collections.abc import Mapping, Sequence, Set
from math import gcd, lcm

from lightrft_ray.config.algorithm import GROUP_ESTIMATORS, AlgorithmConfig
from lightrft_ray.config.data import DataConfig
from lightrft_ray.config.evaluation import EvaluationConfig
from lightrft_ray.config.fields import Section, reject_changed
from lightrft_ray.config.model import ModelConfig
from lightrft_ray.config.placement import PlacementConfig
from lightrft_ray.config.reward import RewardConfig
from lightrft_ray.config.rollout import RolloutConfig
from lightrft_ray.config.trainer import TrainerConfig


def check_group_size(rollout: RolloutConfig, algorithm: AlgorithmConfig) -> None:
    """A group of one sample has nothing to be compared with: its advantage is always 0."""
    estimator = algorithm.advantage_estimator
    if estimator in GROUP_ESTIMATORS and rollout.n_samples_per_prompt < 2:
        raise ValueError(
            f"algorithm.advantage_estimator {estimator} compares the samples of one prompt: set "
            "rollout.n_samples_per_prompt to 2 or more, or algorithm.advantage_estimator to gae"
        )


def check_fire(rollout: RolloutConfig, algorithm: AlgorithmConfig) -> None:
    """A hot first token is off-policy: the learner's own log-prob must tell by how much."""
    if rollout.use_fire and algorithm.old_log_probs == "rollout":
        raise ValueError(
            "rollout.use_fire draws first tokens from another distribution than the one that is "
            "trained, and with algorithm.old_log_probs rollout the loss would clip most of them "
            "away: set algorithm.old_log_probs to learner, or rollout.use_fire to false"
        )


def check_reference(model: ModelConfig, algorithm: AlgorithmConfig) -> None:
    """A checkpoint named for a model that the run does not use is a misunderstanding."""
    if model.ref_pretrain is not None and algorithm.init_kl_coef == 0:
        raise ValueError(
            "model.ref_pretrain is set but algorithm.init_kl_coef 0 uses no reference: "
            "set algorithm.init_kl_coef above 0, or model.ref_pretrain to null"
        )


def check_critic(
    model: ModelConfig,
    trainer: TrainerConfig,
    placement: PlacementConfig,
    algorithm: AlgorithmConfig,
) -> None:
    """Settings of a critic that nobody asks for; ESTIMATOR_SETTINGS has those of the algorithm."""
    if algorithm.advantage_estimator == "gae":
        return
    of_critic: tuple[tuple[Section, str], ...] = (
        (model, "model.critic_pretrain"),
        (trainer, "trainer.critic_learning_rate"),
        (trainer, "trainer.critic_warmup_steps"),
        (placement, "placement.critic_num_gpus_per_node"),
    )
    for section, name in of_critic:
        reject_changed(
            section,
            name,
            f"algorithm.advantage_estimator {algorithm.advantage_estimator}, which has no critic",
            "algorithm.advantage_estimator to gae",
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
    if reward.length_shaping == "kimi" and rollout.n_samples_per_prompt < 2:
        raise ValueError(
            "reward.length_shaping kimi compares the lengths of one prompt's samples: set "
            "rollout.n_samples_per_prompt to 2 or more, or reward.length_shaping to linear"
        )
    if reward.reward_running_norm != "none" and algorithm.advantage_estimator == "group_norm":
        raise ValueError(
            f"reward.reward_running_norm {reward.reward_running_norm} does nothing with "
            "algorithm.advantage_estimator group_norm, which divides by the deviation in the "
            "group: set reward.reward_running_norm to none, or the estimator to dr_grpo"
        )


def check_correct_threshold(reward: RewardConfig, data: DataConfig) -> None:
    """Somebody must ask whether a response is correct."""
    is_asked = reward.length_shaping in ("cosine", "kimi") or data.prompt_sampling == "difficulty"
    if reward.correct_threshold is not None and not is_asked:
        raise ValueError(
            "reward.correct_threshold does nothing here: set reward.length_shaping to cosine or "
            "kimi, data.prompt_sampling to difficulty, or reward.correct_threshold to null"
        )


def check_attention(model: ModelConfig, placement: PlacementConfig, groups: Sequence[str]) -> None:
    """Two kinds run on GPUs only; `groups` are the used ones of actor, critic and ref."""
    implementation = model.attn_implementation
    if implementation not in ("flash_attention_2", "flex_attention"):
        return
    for group in groups:
        gpus = f"{group}_num_gpus_per_node"
        if getattr(placement, gpus) == 0:
            raise ValueError(
                f"model.attn_implementation {implementation} needs GPUs: set placement.{gpus} "
                "to 1 or more, or model.attn_implementation to sdpa"
            )


def check_row_layout(model: ModelConfig, trainer: TrainerConfig) -> None:
    """FlashAttention keeps packed samples apart, and does not know which share a prompt."""
    flash = model.attn_implementation == "flash_attention_2"
    if flash and trainer.row_layout == "shared_prefix":
        raise ValueError(
            "model.attn_implementation flash_attention_2 cannot run trainer.row_layout "
            "shared_prefix: set trainer.row_layout to packed, or model.attn_implementation to "
            "flex_attention or sdpa"
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


def check_placed_roles(placement: PlacementConfig, roles: Set[str]) -> None:
    """Only processes that there are can be placed; `roles` are those of the run."""
    for setting in ("resources", "strategies"):
        for role in getattr(placement, setting):
            if role not in roles:
                raise ValueError(
                    f"placement.{setting} names the {role}, which the run does not have: it has "
                    f"{', '.join(sorted(roles))}"
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


def check_demonstrations(
    data: DataConfig, algorithm: AlgorithmConfig, trainer: TrainerConfig, ranks: int
) -> None:
    """Settings of a supervised loss need its data, and the learner's `ranks` get equal shares."""
    if data.pretrain_data is None:
        used_with_data = ((algorithm, "algorithm.ptx_coef"), (trainer, "trainer.ptx_batch_size"))
        for section, name in (*used_with_data, (data, "data.output_key")):
            reject_changed(section, name, "data.pretrain_data null", "data.pretrain_data to a file")
    elif trainer.ptx_batch_size is not None and trainer.ptx_batch_size % ranks:
        raise ValueError(
            f"trainer.ptx_batch_size {trainer.ptx_batch_size} does not divide over {ranks} learner "
            f"ranks (placement): set trainer.ptx_batch_size to a multiple of {ranks}"
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


def check_critic_warmup(trainer: TrainerConfig) -> None:
    """The critic's warm-up leaves steps for the policy."""
    warmup, steps = trainer.critic_warmup_steps, trainer.num_steps
    if warmup >= steps:
        raise ValueError(
            f"trainer.critic_warmup_steps {warmup} leaves the policy none of "
            f"trainer.num_steps {steps}: set trainer.critic_warmup_steps below {steps}"
        )


def check_evaluated_average(evaluation: EvaluationConfig, trainer: TrainerConfig) -> None:
    """Only an average that is kept can be evaluated."""
    if evaluation.eval_ema and not trainer.enable_ema:
        raise ValueError(
            "evaluation.eval_ema evaluates the average that trainer.enable_ema keeps: set "
            "trainer.enable_ema to true, or evaluation.eval_ema to false"
        )


def check_warmup(trainer: TrainerConfig, optimizer_steps: int) -> None:
    """A warm-up as long as the run never reaches the learning rate that was asked for."""
    if trainer.lr_warmup_steps >= optimizer_steps:
        raise ValueError(
            f"trainer.lr_warmup_steps {trainer.lr_warmup_steps} leaves none of the run's "
            f"{optimizer_steps} optimizer steps (trainer.num_steps {trainer.num_steps}): "
            f"set trainer.lr_warmup_steps below {optimizer_steps}"
        )
