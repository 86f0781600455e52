"""The configuration of a run: its sections and what follows from several of them together.

Each section has a file of its own. The defaults are those of the embedded demo, which runs on a
CPU. The string below a setting is its text in `--help`. A leaf name is unique over all sections, so
`--n_samples_per_prompt` means the same as `--rollout.n_samples_per_prompt`.
"""

from typing import Literal, Self

from pydantic import NonNegativeInt, model_validator

from lightrft_ray.config.algorithm import AlgorithmConfig
from lightrft_ray.config.checkpoint import CheckpointConfig
from lightrft_ray.config.checks import (
    check_attention,
    check_correct_threshold,
    check_cpu_ranks,
    check_critic,
    check_critic_warmup,
    check_demonstrations,
    check_evaluated_average,
    check_fire,
    check_group_size,
    check_kl,
    check_micro_batch,
    check_placed_roles,
    check_reference,
    check_row_layout,
    check_shaping,
    check_train_batch,
    check_warmup,
)
from lightrft_ray.config.colocation_checks import check_colocation
from lightrft_ray.config.data import DataConfig
from lightrft_ray.config.evaluation import EvaluationConfig
from lightrft_ray.config.fields import NonEmptyStr, Section
from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.config.model import ModelConfig
from lightrft_ray.config.output_checks import check_export, check_overwriting, check_resuming
from lightrft_ray.config.placement import PlacementConfig
from lightrft_ray.config.recovery import RecoveryConfig
from lightrft_ray.config.reward import RewardConfig
from lightrft_ray.config.rollout import RolloutConfig
from lightrft_ray.config.secrets import refuse_passwords
from lightrft_ray.config.staleness_checks import check_staleness
from lightrft_ray.config.sync import SyncConfig
from lightrft_ray.config.sync_checks import check_lora_sync, check_transport
from lightrft_ray.config.trainer import TrainerConfig


class RunConfig(Section):
    """A whole run. Building one with contradictory settings raises pydantic's ValidationError.

    `load_config` and `parse_command_line` turn that into a `UserError` that names the setting.
    """

    seed: NonNegativeInt = 1
    """Seed of everything random in the run."""
    output_dir: NonEmptyStr = "runs/ppo_vl"
    """Folder for metrics, plots, trajectories and checkpoints."""
    overwrite_output: bool = False
    """Replace an earlier run in output_dir."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    media: MediaConfig = MediaConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    trainer: TrainerConfig = TrainerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    sync: SyncConfig = SyncConfig()
    placement: PlacementConfig = PlacementConfig()
    logging: LoggingConfig = LoggingConfig()

    @property
    def checkpoint_url(self) -> str:
        """`checkpoint.ckpt_path` with its default filled in."""
        return self.checkpoint.ckpt_path or f"{self.output_dir.rstrip('/')}/checkpoints"

    @property
    def generator_dtype(self) -> Literal["float32", "bfloat16"]:
        """`rollout.vllm_dtype` with its default filled in."""
        return self.rollout.vllm_dtype or self.model.dtype

    @property
    def learner_ranks(self) -> int:
        """Data-parallel learner processes: one a GPU, or the CPU processes where there is none."""
        placement = self.placement
        gpus = placement.actor_num_nodes * placement.actor_num_gpus_per_node
        return gpus or placement.cpu_learner_ranks

    @property
    def critic_ranks(self) -> int:
        """Data-parallel processes of the critic, counted as those of the learner."""
        placement = self.placement
        gpus = placement.critic_num_nodes * placement.critic_num_gpus_per_node
        return gpus or placement.cpu_learner_ranks

    @property
    def uses_reference(self) -> bool:
        """Whether the run needs reference log-probs."""
        return self.algorithm.init_kl_coef > 0

    @property
    def uses_critic(self) -> bool:
        """Whether the run trains a critic."""
        return self.algorithm.advantage_estimator == "gae"

    @property
    def roles(self) -> frozenset[str]:
        """Kinds of workers that the run has."""
        optional = {
            "reference": self.uses_reference,
            "critic": self.uses_critic,
            "reward_model": bool(self.reward.models),
        }
        used = {role for role, is_used in optional.items() if is_used}
        return frozenset({"learner", "generator", "reward"} | used)

    @property
    def guests(self) -> frozenset[str]:
        """Kinds of workers that take turns with the learner on its devices."""
        kinds = {
            "none": set[str](),
            "learner_generator": {"generator"},
            "all": {"generator", "reference", "critic"},
        }
        return self.roles & kinds[self.placement.colocate]

    @property
    def samples_per_step(self) -> int:
        """Samples that one step generates and learns from."""
        return self.rollout.rollout_batch_size * self.rollout.n_samples_per_prompt

    @property
    def updates_per_step(self) -> int:
        """Optimizer steps on the samples of one step."""
        return self.trainer.max_epochs * (self.samples_per_step // self.trainer.train_batch_size)

    @property
    def demonstrations_per_update(self) -> int:
        """Demonstrations of an optimizer step where the run has any; all ranks together."""
        return self.trainer.ptx_batch_size or self.trainer.train_batch_size

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps of the policy in the whole run: the length of its schedule."""
        steps = self.trainer.num_steps - self.trainer.critic_warmup_steps
        return steps * self.updates_per_step

    @property
    def critic_optimizer_steps(self) -> int:
        """Optimizer steps of the critic in the whole run."""
        return self.trainer.num_steps * self.updates_per_step

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        groups = ["actor"]
        groups += ["critic"] if self.uses_critic else []
        groups += ["ref"] if self.uses_reference else []
        ranks = {"learner": self.learner_ranks}
        ranks |= {"critic": self.critic_ranks} if self.uses_critic else {}
        check_group_size(self.rollout, self.algorithm)
        check_fire(self.rollout, self.algorithm)
        check_kl(self.algorithm)
        check_shaping(self.reward, self.rollout, self.algorithm)
        check_correct_threshold(self.reward, self.data)
        check_reference(self.model, self.algorithm)
        check_critic(self.model, self.trainer, self.placement, self.algorithm)
        check_attention(self.model, self.placement, groups)
        check_row_layout(self.model, self.trainer)
        check_cpu_ranks(self.placement, groups)
        check_placed_roles(self.placement, self.roles)
        check_train_batch(self.samples_per_step, self.trainer, ranks)
        check_micro_batch(self.trainer, ranks)
        check_demonstrations(self.data, self.algorithm, self.trainer, self.learner_ranks)
        check_critic_warmup(self.trainer)
        check_warmup(self.trainer, self.optimizer_steps)
        check_evaluated_average(self.evaluation, self.trainer)
        refuse_passwords(self.model_dump())
        check_lora_sync(self.sync, self.model)
        check_transport(self.sync, self.placement)
        check_colocation(self.placement, self.rollout, self.trainer, self.evaluation, self.guests)
        check_staleness(self.rollout, self.algorithm, self.evaluation)
        check_export(self.checkpoint, self.model)
        if self.overwrite_output:
            check_resuming(self.checkpoint)
            check_overwriting(self.output_dir, self.model, self.data, self.reward)
        return self
