"""The vision-language policy, usable alone in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from lightrft_ray.models.families import MORE_MEDIA, hugging_face_model, media_inputs
from lightrft_ray.models.generation import generate_sequences
from lightrft_ray.models.loading import load_policy, trainable_summary
from lightrft_ray.models.model_setup import ModelOptions, ModelSetup, build_model, sampled_by
from lightrft_ray.models.policy_passes import Batch, policy_forward
from lightrft_ray.models.sequence_passes import ActionCounts
from lightrft_ray.models.sequences import process_sequences


class ActorVL(nn.Module):
    """A Hugging Face vision-language model as a policy; arguments as those of `ActorLanguage`."""

    modality = "vision_language"

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

    def forward(  # noqa: PLR0917 - the documented interface
        self,
        sequences: Tensor,
        num_actions: ActionCounts | None = None,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        pixel_values_videos: Tensor | None = None,
        video_grid_thw: Tensor | None = None,
        return_output: bool = False,
        packed_seq_lens: Sequence[int] | Tensor | None = None,
        second_per_grid_ts: Tensor | None = None,
        **more_media: Tensor,
    ) -> Tensor | tuple[Tensor, ModelOutput]:
        """Log-probs of the actions as `ActorLanguage.forward` gives them.

        Pixels are those of all samples in their order, `second_per_grid_ts` (videos,) seconds;
        `more_media` are further media inputs of some families, as `image_sizes`. Raises UserError
        for media that the model does not see, ValueError where tokens and grids do not match.
        """
        media = media_inputs(
            self.model,
            {
                "pixel_values": pixel_values,
                "image_grid_thw": image_grid_thw,
                "pixel_values_videos": pixel_values_videos,
                "video_grid_thw": video_grid_thw,
                "second_per_grid_ts": second_per_grid_ts,
                **more_media,
            },
        )
        return policy_forward(
            self.model,
            Batch(sequences, num_actions, attention_mask, packed_seq_lens, media),
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
        pixel_values_videos: Tensor | None = None,
        video_grid_thw: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`(sequences, attention_mask, action_mask)` for left-padded prompts (B, P).

        Keywords are `attention_mask` (B, P), those of `GenerationSettings`, and further media
        inputs of the model's family.
        """
        more_media = {name: kwargs.pop(name) for name in MORE_MEDIA if name in kwargs}
        media = media_inputs(
            self.model,
            {
                "pixel_values": pixel_values,
                "image_grid_thw": image_grid_thw,
                "pixel_values_videos": pixel_values_videos,
                "video_grid_thw": video_grid_thw,
                **more_media,
            },
        )
        return generate_sequences(self.model, input_ids, media, self.sampling, **kwargs)

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
