"""Experience made in one process, without Ray or vLLM, and the types that it is made of.

It does what the distributed path does, by the same functions: it is the reference that path must
equal, and enough alone on one GPU or a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.rewards.functions import RewardFunction
from lightrft_ray.trainer.advantages import cumulative_returns, generalized_advantage_estimation
from lightrft_ray.trainer.experience_settings import experience_settings
from lightrft_ray.trainer.experience_types import (
    ExperienceVL,
    SamplesVL,
    cumulative_product,
    pin_memory,
    to,
)
from lightrft_ray.trainer.local_generation import (
    generate_batch,
    prompt_batch,
    prompt_rows,
    score_at,
)
from lightrft_ray.trainer.local_scoring import LocalModels, score_samples
from lightrft_ray.trainer.prompt_inputs import PromptMedia, encode_prompts
from lightrft_ray.trainer.reward_sources import reward_source
from lightrft_ray.trainer.rollout_advantages import add_advantages, process_totals
from lightrft_ray.trainer.rollout_shaping import (
    group_ids_of,
    informative_rows,
    select_samples,
    shaped_rewards,
)
from lightrft_ray.trainer.sample_checks import check_finite, check_placeholders
from lightrft_ray.trainer.sample_layouts import batched, samples_to
from lightrft_ray.trainer.shaping import RunningRewardNormalizer

__all__ = [
    "ExperienceVL",
    "NaiveExperienceMakerVL",
    "SamplesVL",
    "cumulative_product",
    "pin_memory",
    "to",
]


class KLController(Protocol):
    """Gives the KL coefficient of the moment."""

    value: float


class NaiveExperienceMakerVL:
    """Generates, scores and turns samples of text, images and videos into experience.

    `actor` and `initial_model` are actors or Hugging Face models. Critic, reference, reward model
    and KL controller may be None where the estimator and the rewards do without. `strategy` is what
    `experience_settings` takes. Rewards come from one of `reward_model`, `remote_rm_url`, which is
    a ``.py`` file with `reward_func` or the addresses of a service (grpc:// or http://), and
    `reward_fn`, which is called as `rewards.functions` says.
    """

    def __init__(  # noqa: PLR0917 - the documented interface
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        reward_model: nn.Module | None,
        initial_model: nn.Module | None,
        tokenizer: PreTrainedTokenizerBase,
        processor: ProcessorMixin | None,
        prompt_max_len: int,
        kl_controller: KLController | None,
        strategy: object = None,
        remote_rm_url: list[str] | None = None,
        reward_fn: RewardFunction | None = None,
    ) -> None:
        self.settings = experience_settings(strategy)
        self.actor = _as_actor(actor)
        self.critic = critic
        self.initial_model = None if initial_model is None else _as_actor(initial_model)
        self.tokenizer = tokenizer
        self.processor = processor
        self.prompt_max_len = prompt_max_len
        self.kl_controller = kl_controller
        self.reward_normalizer = RunningRewardNormalizer()
        self._rewards = reward_source(reward_model, remote_rm_url, reward_fn, decode=self._text)
        self._max_new_tokens = self.settings.max_new_tokens

    def tokenize_fn(
        self,
        texts: list[str],
        max_length: int,
        padding: bool = True,
        device: torch.device | str | None = None,
    ) -> dict[str, Tensor] | list[list[int]]:
        """Token ids of texts: left-padded tensors, or without `padding` a list for each text.

        Raises ValueError for a text of more than `max_length` tokens: nothing is cut off.
        """
        prompts = encode_prompts(texts, None, max_length, self.tokenizer, None)
        if padding:
            return prompt_batch(prompts, self._pad_token_id, device)
        return [prompt.token_ids for prompt in prompts]

    def processor_fn(
        self,
        texts: list[str],
        images: Sequence[PromptMedia] | None,
        max_length: int,
        padding: bool = True,
        device: torch.device | str | None = None,
    ) -> dict[str, Tensor] | list[dict[str, Tensor]]:
        """Model inputs of texts with their media: one batch, or without `padding` one a text.

        An entry of `images` is an image, a `prompt_inputs.Video`, a list of these, or None. Errors
        as in `tokenize_fn`.
        """
        prompts = encode_prompts(texts, images, max_length, self.tokenizer, self.processor)
        if padding:
            return prompt_batch(prompts, self._pad_token_id, device)
        return [prompt_batch([prompt], self._pad_token_id, device) for prompt in prompts]

    @torch.no_grad()
    def generate_samples(
        self,
        all_prompts: list[str],
        all_images: Sequence[PromptMedia] | None,
        all_references: list[str] | None,
        all_labels: list[str] | None,
        **generate_kwargs: Any,
    ) -> list[SamplesVL]:
        """Batches of at most `micro_rollout_batch_size` samples, prompt after prompt.

        Each prompt has `n_samples_per_prompt` samples and goes through the processor once; what it
        shows, its entry in `all_images`, is what `processor_fn` takes. Keywords
        are those of the actor's `generate`, and `gamma` and `lambd`, which mean nothing here. A
        `temperature` becomes the one that actor and reference score at.
        """
        prompts = [all_prompts] if isinstance(all_prompts, str) else all_prompts
        encoded = encode_prompts(
            prompts, all_images, self.prompt_max_len, self.tokenizer, self.processor
        )
        rows = [
            row
            for row in prompt_rows(prompts, encoded, all_references, all_labels)
            for _ in range(self.settings.n_samples_per_prompt)
        ]
        arguments = self._generation_arguments(generate_kwargs)
        size = self.settings.micro_rollout_batch_size
        return [
            generate_batch(
                self.actor,
                rows[start : start + size],
                self.tokenizer,
                self._pad_token_id,
                arguments,
            )
            for start in range(0, len(rows), size)
        ]

    def _generation_arguments(self, generate_kwargs: dict[str, Any]) -> dict[str, Any]:
        defaults = {
            "max_new_tokens": self.settings.max_new_tokens,
            "eos_token_id": self.tokenizer.eos_token_id,
            "pad_token_id": self._pad_token_id,
        }
        given = {key: v for key, v in generate_kwargs.items() if key not in ("gamma", "lambd")}
        arguments = defaults | given
        self._max_new_tokens = arguments["max_new_tokens"]
        if arguments.get("temperature"):
            score_at([self.actor, self.initial_model], arguments["temperature"])
        return arguments

    def make_experience(self, samples: SamplesVL) -> ExperienceVL:
        """Log-probs, values, reward and KL of samples in either layout; experience is batched.

        `info` holds, an entry a sample: `reward` (NaN where it failed), `kl` (mean), token counts
        `response_length`, `total_length` and `num_actions`, and the samples' counts of media,
        prompts, references, labels and texts. Raises ValueError for samples that do not fit
        together: it names the field, the prompt and both numbers.
        """
        checked = samples_to(batched(samples, self._pad_token_id), self._device)
        check_placeholders(checked, self.actor)
        models = LocalModels(self.actor, self.critic, self.initial_model, self._rewards)
        return score_samples(checked, models, self.settings.algorithm)

    def make_experience_list(
        self,
        all_prompts: str | list[str],
        all_images: Sequence[PromptMedia] | None,
        all_references: list[str] | None,
        all_labels: list[str] | None,
        **generate_kwargs: Any,
    ) -> list[ExperienceVL]:
        """Generate, score, shape, and compute advantages and returns over all prompts at once.

        `gamma` and `lambd` hold for every batch. With dynamic sampling the list may be shorter, or
        empty: the caller draws new prompts.
        """
        prompts = [all_prompts] if isinstance(all_prompts, str) else all_prompts
        samples = self.generate_samples(
            prompts, all_images, all_references, all_labels, **generate_kwargs
        )
        experiences, rewards = self.process_experiences(
            [self.make_experience(batch) for batch in samples]
        )
        algorithm = self.settings.with_discounts(
            generate_kwargs.get("gamma"), generate_kwargs.get("lambd")
        )
        if experiences:
            add_advantages(experiences, rewards, algorithm, kl_coef=self._kl_coef)
        return experiences

    def process_experiences(
        self, experiences: list[ExperienceVL]
    ) -> tuple[list[ExperienceVL], list[Tensor]]:
        """Shape rewards and, with dynamic sampling, leave out groups whose rewards are all equal.

        Experiences hold whole groups, sample after sample; a group may lie in several. Gives the
        experiences with `group_ids` in their `info`, and each one's shaped rewards, (B,).
        """
        if not experiences:
            return [], []
        rewards = torch.cat([_info(each)["reward"] for each in experiences])
        lengths = torch.cat([_info(each)["response_length"] for each in experiences])
        groups = group_ids_of(len(rewards), self.settings.n_samples_per_prompt, rewards.device)
        sizes = [len(each.sequences) for each in experiences]
        for each, own in zip(experiences, groups.split(sizes), strict=True):
            _info(each)["group_ids"] = own
        shaped = shaped_rewards(
            rewards,
            lengths,
            groups,
            self.settings,
            self.reward_normalizer,
            max_length=self._max_new_tokens,
        )
        if self.settings.dynamic_sampling:
            totals = rewards + torch.cat([process_totals(each) for each in experiences])
            keep = informative_rows(totals, groups)
            experiences = select_samples(experiences, keep, self._pad_token_id)
            shaped = shaped[keep]
        return experiences, list(shaped.split([len(each.sequences) for each in experiences]))

    def get_advantages_and_returns(
        self, values: Tensor, rewards: Tensor, action_mask: Tensor, gamma: float, lambd: float
    ) -> tuple[Tensor, Tensor]:
        """GAE: advantages and returns, (B, A) each, exactly 0 where masked.

        Raises ValueError for a reward or value of an action that is not finite.
        """
        check_finite("values", values, action_mask)
        check_finite("rewards", rewards, action_mask)
        return generalized_advantage_estimation(
            values, rewards, action_mask, gamma=gamma, lambd=lambd
        )

    def get_cumulative_returns(self, rewards: Tensor, action_mask: Tensor, gamma: float) -> Tensor:
        """Discounted sums of the rewards to come, (B, A), exactly 0 where masked.

        Raises ValueError for a reward of an action that is not finite.
        """
        check_finite("rewards", rewards, action_mask)
        return cumulative_returns(rewards, action_mask, gamma=gamma)

    def _text(self, token_ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    @property
    def _device(self) -> torch.device:
        return next(self.actor.parameters()).device

    @property
    def _pad_token_id(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    @property
    def _kl_coef(self) -> float:
        if self.kl_controller is None:
            return self.settings.algorithm.init_kl_coef
        return self.kl_controller.value


def _as_actor(model: nn.Module) -> nn.Module:
    """Hugging Face models get what actors have."""
    return ActorVL(model) if isinstance(model, PreTrainedModel) else model


def _info(experience: ExperienceVL) -> dict[str, Any]:
    if experience.info is None:
        raise ValueError("experience.info is missing: it holds the rewards")
    return experience.info
