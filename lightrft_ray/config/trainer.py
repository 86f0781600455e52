"""Settings of optimization."""

from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lightrft_ray.config.fields import AdamBeta, Section, require_integer


class TrainerConfig(Section):
    """Optimization by the learners."""

    num_steps: PositiveInt = 150
    """Steps of the run; each generates, scores, learns and publishes once."""
    max_epochs: PositiveInt = 1
    """Passes over the samples of a step."""
    train_batch_size: PositiveInt = 256
    """Samples of an optimizer step, all ranks together."""
    ptx_batch_size: PositiveInt | None = None
    """Demonstrations of an optimizer step, all ranks together (null: train_batch_size)."""
    micro_train_batch_size: PositiveInt = 256
    """Samples of one forward and backward pass on one rank."""
    micro_rollout_batch_size: PositiveInt = 256
    """Samples of one scoring pass on one worker."""
    actor_learning_rate: NonNegativeFloat = 5e-4
    """Peak learning rate of the policy."""
    critic_learning_rate: NonNegativeFloat = 1e-3
    """Peak learning rate of the critic."""
    critic_warmup_steps: NonNegativeInt = 0
    """First steps of the run in which the critic alone is trained."""
    lr_warmup_steps: NonNegativeInt = 0
    """Optimizer steps over which the learning rate rises from 0."""
    lr_scheduler: Literal["constant", "cosine", "linear"] = "constant"
    """Course of the learning rate after the warm-up; cosine and linear end at 0."""
    adam_betas: Annotated[tuple[AdamBeta, AdamBeta], Field(strict=False)] = (0.9, 0.95)
    """Decay rates of Adam's two moments."""
    l2: NonNegativeFloat = 0.0
    """Decoupled weight decay of Adam."""
    max_norm: PositiveFloat = 1.0
    """Gradient norm past which gradients are scaled down."""
    max_skipped_in_row: PositiveInt = 10
    """Updates in a row without a finite loss and gradient after which the run stops."""
    enable_ema: bool = False
    """Keep a moving average of the policy's weights, for hf_checkpoint."""
    ema_beta: AdamBeta | None = None
    """Share of the average that an update keeps (null: 0.992)."""
    zero_stage: Annotated[Literal[0, 1, 2, 3], BeforeValidator(require_integer)] = 1
    """DeepSpeed ZeRO stage: what the ranks share out among them."""
    row_layout: Literal["shared_prefix", "packed", "padded"] = "shared_prefix"
    """A micro-batch is one row in which samples share their prompt or repeat it, or is padded."""
    learner_timeout: PositiveFloat = 600
    """Seconds to wait for one call of a learner, reference or critic."""

    @property
    def averaging_beta(self) -> float:
        """`ema_beta` with its default filled in."""
        return 0.992 if self.ema_beta is None else self.ema_beta

    @model_validator(mode="after")
    def _average_is_kept(self) -> Self:
        if self.ema_beta is not None and not self.enable_ema:
            raise ValueError(
                "trainer.ema_beta does nothing without trainer.enable_ema: set "
                "trainer.enable_ema to true, or trainer.ema_beta to null"
            )
        return self
