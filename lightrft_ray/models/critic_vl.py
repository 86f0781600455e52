"""The critic of a vision-language policy, usable alone in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from lightrft_ray.models.families import hugging_face_model, media_inputs
from lightrft_ray.models.loading import load_backbone, trainable_summary
from lightrft_ray.models.model_setup import ModelOptions, ModelSetup, build_model
from lightrft_ray.models.policy_passes import Batch, value_forward
from lightrft_ray.models.sequence_passes import ActionCounts
from lightrft_ray.models.value_head import headless, new_value_head


class CriticVL(nn.Module):
    """Values by a vision-language model that sees the pixels; otherwise a `CriticLanguage`."""

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
        self.model = build_model(headless(pretrain_or_model), setup, load_backbone)
        self.packing_samples = packing_samples
        self.value_head = new_value_head(self.model).to(next(self.model.parameters()).device)

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
        """Values in float32 of the states that the actions are taken in, 0 at padding.

        Arguments, shapes and errors are those of `ActorVL.forward`.
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
        batch = Batch(sequences, num_actions, attention_mask, packed_seq_lens, media)
        values, output = value_forward(
            self.model, self.value_head, batch, pack=self.packing_samples
        )
        return (values, output) if return_output else values

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
        print(trainable_summary(self))
