"""Scalar reward models: one number a sample, from the state of its last real token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.families import hugging_face_model, media_inputs
from lightrft_ray.models.loading import ModelSource, load_backbone, load_config, trainable_summary
from lightrft_ray.models.model_setup import ModelOptions, ModelSetup, build_model
from lightrft_ray.models.policy_passes import Batch, final_states
from lightrft_ray.models.reward_heads import Normalization, head_of_checkpoint, head_of_module
from lightrft_ray.models.value_head import headless, new_value_head


class ScalarRewardModel(nn.Module):
    """Rewards by a Hugging Face model, text or vision-language, and a linear head in float32.

    `pretrain_or_model` is a name, a folder or a module with a head: transformers' sequence
    classifiers (`score`) and OpenRLHF's reward models (`value_head`), of one output. Where the
    checkpoint's configuration has `mean` and `std`, rewards are normalized by them unless
    `normalize` is false. `new_head` puts a new head on a policy, to be trained on pairs or on
    scores. The other arguments are those of `ActorLanguage`. Raises UserError for a checkpoint
    without a head, or with more than one output.
    """

    def __init__(  # noqa: PLR0917 - the order of the actors
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
        *,
        normalize: bool = True,
        new_head: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
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
            ModelOptions(**kwargs),
        )
        config = _config(pretrain_or_model, setup.options.trust_remote_code)
        head = None if new_head else _existing_head(pretrain_or_model, config)
        self.model = build_model(headless(pretrain_or_model), setup, load_backbone)
        device = next(self.model.parameters()).device
        self.value_head = (new_value_head(self.model) if head is None else head).to(device)
        self.normalization = Normalization.of(config) if normalize else Normalization()
        self.packing_samples = packing_samples

    def forward(  # noqa: PLR0917 - the order of the actors
        self,
        sequences: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        pixel_values_videos: Tensor | None = None,
        video_grid_thw: Tensor | None = None,
        packed_seq_lens: Sequence[int] | Tensor | None = None,
        second_per_grid_ts: Tensor | None = None,
        **more_media: Tensor,
    ) -> Tensor:
        """Rewards (B,) in float32 of whole samples: padded (B, S), or packed (1, T).

        Media arguments and errors are those of `ActorVL.forward`.
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
        batch = Batch(sequences, None, attention_mask, packed_seq_lens, media)
        states = final_states(self.model, batch, pack=self.packing_samples)
        return self.normalization(self.value_head(states.float())[:, 0])

    def print_trainable_parameters(self) -> None:
        """Print how many parameters train, of how many."""
        print(trainable_summary(self))


def pairwise_loss(chosen: Tensor, rejected: Tensor, margin: float = 0.0) -> Tensor:
    """Mean of −log σ(chosen − rejected − margin) (Bradley-Terry; Ouyang et al. 2022, 2203.02155).

    `chosen` and `rejected` (B,) are rewards of the better and the worse response of each pair.
    """
    return -torch.nn.functional.logsigmoid(chosen - rejected - margin).mean()


def _config(pretrain_or_model: str | nn.Module, trust_remote_code: bool) -> PretrainedConfig:
    if isinstance(pretrain_or_model, str):
        source = ModelSource(pretrain_or_model, trust_remote_code=trust_remote_code)
        return load_config(source, "reward model")
    return hugging_face_model(pretrain_or_model).config


def _existing_head(pretrain_or_model: str | nn.Module, config: PretrainedConfig) -> nn.Linear:
    if isinstance(pretrain_or_model, str):
        head, where = head_of_checkpoint(pretrain_or_model, config), pretrain_or_model
    else:
        head = head_of_module(pretrain_or_model, config)
        where = type(pretrain_or_model).__name__
    if head is None:
        raise UserError(
            f"reward model {where}: it has no head (score or value_head); give a reward model, or "
            "new_head=True to train a new head on it"
        )
    return head
