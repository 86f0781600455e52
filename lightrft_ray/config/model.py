"""Settings of the models that a run loads."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from lightrft_ray.config.fields import NonEmptyStr, Section, reject_changed

LoraDropout = Annotated[float, Field(ge=0, lt=1)]


class ModelConfig(Section):
    """Checkpoints of the policy, the reference and the critic."""

    pretrain: NonEmptyStr = "embedded:tiny-qwen2.5-vl"
    """Policy to train: Hugging Face name, folder, or embedded:NAME."""
    ref_pretrain: NonEmptyStr | None = None
    """Reference model of the KL term (null: pretrain)."""
    critic_pretrain: NonEmptyStr | None = None
    """Model the critic starts from (null: pretrain)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Parameter type of learners and generators."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flex_attention"] = "sdpa"
    """Attention of learners, reference and critic; the last two run on GPUs only."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    trust_remote_code: bool = False
    """Run Python code that comes with a checkpoint."""
    freeze_vision_tower: bool = False
    """Leave the vision tower of policy and critic as it is: neither trained nor published."""
    freeze_projector: bool = False
    """The same for what joins the vision tower to the language model."""
    freeze_embeddings: bool = False
    """The same for the token embeddings, and with them for an output head that is tied to them."""
    freeze_patterns: Annotated[tuple[NonEmptyStr, ...], Field(strict=False)] = ()
    """The same for parameters of the policy by name, in which * stands for anything."""

    lora_rank: NonNegativeInt = 0
    """Rank of adapters, which alone train of the policy (0: its own weights train)."""
    lora_alpha: PositiveInt = 16
    """Adapters count lora_alpha / lora_rank times (lora_rank > 0 only)."""
    lora_dropout: LoraDropout = 0.0
    """Share of an adapter's inputs that are left out in training (lora_rank > 0 only)."""
    target_modules: Annotated[tuple[NonEmptyStr, ...], Field(strict=False)] | None = None
    """Ends of names of layers that get adapters (null: all linear ones of the language model)."""

    @model_validator(mode="after")
    def _adapters_alone_train(self) -> Self:
        if self.lora_rank == 0:
            for name in ("lora_alpha", "lora_dropout", "target_modules"):
                reject_changed(
                    self, f"model.{name}", "model.lora_rank 0", "model.lora_rank to 1 or more"
                )
        elif self.freeze_patterns:
            raise ValueError(
                f"model.freeze_patterns do nothing with model.lora_rank {self.lora_rank}, which "
                "trains adapters alone: leave the patterns out, or set model.lora_rank to 0"
            )
        return self

    @model_validator(mode="after")
    def _flash_attention_needs_half_precision(self) -> Self:
        if self.attn_implementation == "flash_attention_2" and self.dtype == "float32":
            raise ValueError(
                "model.attn_implementation flash_attention_2 has no float32 kernels: "
                "set model.dtype to bfloat16, or model.attn_implementation to sdpa"
            )
        return self
