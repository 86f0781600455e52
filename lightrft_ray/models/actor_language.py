"""The text policy, usable alone in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.families import hugging_face_model
from lightrft_ray.models.generation import generate_sequences
from lightrft_ray.models.loading import load_policy, trainable_summary
from lightrft_ray.models.model_setup import ModelOptions, ModelSetup, build_model, sampled_by
from lightrft_ray.models.policy_passes import Batch, policy_forward
from lightrft_ray.models.sequence_passes import ActionCounts
from lightrft_ray.models.sequences import process_sequences


class ActorLanguage(nn.Module):
    """A Hugging Face language model as a policy.

    `pretrain_or_model` is a name, a folder or a module, which keeps its type and device. With
    `packing_samples` padded batches are computed without their padding. `ModelOptions` holds the
    further keywords. Raises UserError for arguments that cannot be honoured.
    """

    modality = "text"

    def __init__(  # noqa: PLR0917 - the documented interface
        self,
        pretrain_or_model: str | nn.Module,
        use_flash_attention_2: bool = False,
        bf16: bool = True,
        lora_rank: int = 0,
        lora_alpha: int = 16,
        lora_dropout: float = 0.0,
        target_modules: Sequence[str] | None = None,
        ds_config: dict[str, object] | None = None,
        device_map: dict[str, int | str] | str | None = None,
        packing_samples: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        options = ModelOptions(**kwargs)
        setup = ModelSetup(
            use_flash_attention_2,
            bf16,
            lora_rank,
            lora_alpha,
            lora_dropout,
            target_modules,
            ds_config,
            device_map,
            packing_samples,
            options,
        )
        self.model = build_model(pretrain_or_model, setup, load_policy)
        self.packing_samples = packing_samples
        self.high_entropy_token_ratio = options.high_entropy_token_ratio
        self.sampling = sampled_by(self.model, options)

    def forward(
        self,
        sequences: Tensor,
        num_actions: ActionCounts | None = None,
        attention_mask: Tensor | None = None,
        return_output: bool = False,
        packed_seq_lens: Sequence[int] | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ModelOutput]:
        """Log-probs of the actions in float32, 0 at padding.

        `sequences` (B, S) gives (B, A), or (B, S − 1) without `num_actions`. A packed (1, T) with
        `packed_seq_lens` gives (1, Σ num_actions), or (1, T − 1). With `return_output` also the
        model's output, which has `action_entropy` if the actor keeps high-entropy tokens.
        """
        return policy_forward(
            self.model,
            Batch(sequences, num_actions, attention_mask, packed_seq_lens, {}),
            self.sampling,
            pack=self.packing_samples,
            return_output=return_output,
            with_entropy=self.high_entropy_token_ratio > 0,
        )

    def generate(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`(sequences, attention_mask, action_mask)` for left-padded prompts (B, P).

        Keywords are `attention_mask` (B, P) and those of `GenerationSettings`.
        UserError for images: this actor sees none.
        """
        if pixel_values is not None or image_grid_thw is not None:
            raise UserError("pixel_values: ActorLanguage sees no images; use ActorVL")
        return generate_sequences(self.model, input_ids, {}, self.sampling, **kwargs)

    def process_sequences(
        self,
        sequences: Tensor,
        input_len: int,
        eos_token_id: int | Sequence[int],
        pad_token_id: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`(sequences, attention_mask, action_mask)`; see `models.sequences`."""
        return process_sequences(sequences, input_len, eos_token_id, pad_token_id)

    def gradient_checkpointing_enable(
        self,
        gradient_checkpointing_kwargs: dict[str, bool] = {"use_reentrant": False},  # noqa: B006
    ) -> None:
        """Recompute activations in the backward pass to save memory."""
        hugging_face_model(self.model).gradient_checkpointing_enable(gradient_checkpointing_kwargs)

    def gradient_checkpointing_disable(self) -> None:
        """Keep activations for the backward pass."""
        hugging_face_model(self.model).gradient_checkpointing_disable()

    def print_trainable_parameters(self) -> None:
        """Print how many parameters train, of how many."""
        print(trainable_summary(self.model))
