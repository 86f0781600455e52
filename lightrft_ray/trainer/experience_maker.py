"""The text-only twin of the experience maker for images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from lightrft_ray.rewards.functions import RewardFunction
from lightrft_ray.trainer.experience_maker_vl import KLController, NaiveExperienceMakerVL
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL


class NaiveExperienceMaker:
    """Generates, scores and turns samples of text into experience, as `NaiveExperienceMakerVL`."""

    def __init__(  # noqa: PLR0917 - in line with the documented interface
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        reward_model: nn.Module | None,
        initial_model: nn.Module | None,
        tokenizer: PreTrainedTokenizerBase,
        prompt_max_len: int,
        kl_controller: KLController | None,
        strategy: object = None,
        remote_rm_url: list[str] | None = None,
        reward_fn: RewardFunction | None = None,
    ) -> None:
        self._maker = NaiveExperienceMakerVL(
            actor,
            critic,
            reward_model,
            initial_model,
            tokenizer,
            None,
            prompt_max_len,
            kl_controller,
            strategy,
            remote_rm_url,
            reward_fn,
        )
        self.make_experience = self._maker.make_experience
        self.process_experiences = self._maker.process_experiences
        self.get_advantages_and_returns = self._maker.get_advantages_and_returns
        self.get_cumulative_returns = self._maker.get_cumulative_returns

    def tokenize_fn(
        self,
        texts: list[str],
        max_length: int,
        padding: bool = True,
        device: torch.device | str | None = None,
    ) -> dict[str, Tensor] | list[list[int]]:
        """Token ids of texts; see `NaiveExperienceMakerVL.tokenize_fn`."""
        return self._maker.tokenize_fn(texts, max_length, padding, device)

    def generate_samples(
        self,
        all_prompts: list[str],
        all_references: list[str] | None,
        all_labels: list[str] | None,
        **generate_kwargs: Any,
    ) -> list[SamplesVL]:
        """Batches of samples; see `NaiveExperienceMakerVL.generate_samples`."""
        return self._maker.generate_samples(
            all_prompts, None, all_references, all_labels, **generate_kwargs
        )

    def make_experience_list(
        self,
        all_prompts: str | list[str],
        all_references: list[str] | None,
        all_labels: list[str] | None,
        **generate_kwargs: Any,
    ) -> list[ExperienceVL]:
        """Experience with advantages; see `NaiveExperienceMakerVL.make_experience_list`."""
        return self._maker.make_experience_list(
            all_prompts, None, all_references, all_labels, **generate_kwargs
        )
