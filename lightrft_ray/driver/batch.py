"""Groups as batched samples, and flat per-token results as (B, A) tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lightrft_ray.trainer.experience_types import SamplesVL
from lightrft_ray.workers.messages import GeneratedSample, GroupTokens, RolloutGroup


@dataclass(frozen=True)
class RolloutBatch:
    """Groups of a step, and all their samples as one batch, in the order of the groups.

    `samples` holds no pixels: the groups refer to them.
    """

    groups: tuple[RolloutGroup, ...]
    samples: SamplesVL
    group_ids: Tensor  # (B,)

    @staticmethod
    def of(groups: Sequence[RolloutGroup], pad_token_id: int) -> "RolloutBatch":
        """Pad the groups' samples to one batch."""
        sizes = torch.tensor([len(group.samples) for group in groups])
        group_ids = torch.arange(len(groups)).repeat_interleave(sizes)
        return RolloutBatch(tuple(groups), _batched_samples(groups, pad_token_id), group_ids)

    @property
    def tokens(self) -> list[GroupTokens]:
        """What models need of the groups."""
        return [group.tokens for group in self.groups]

    @property
    def all_samples(self) -> list[GeneratedSample]:
        """The samples of all groups."""
        return [sample for group in self.groups for sample in group.samples]

    @property
    def rollout_log_probs(self) -> Tensor:
        """(B, A) float32: the generators' log-probs of the sampled tokens."""
        return self.padded(np.concatenate([sample.log_probs for sample in self.all_samples]))

    @property
    def is_truncated(self) -> Tensor:
        """(B,) bool: responses cut by the length limit."""
        return torch.tensor([sample.is_truncated for sample in self.all_samples])

    def padded(self, flat: np.ndarray) -> Tensor:
        """(B, A) from the values (M,) at all response tokens, sample after sample; 0 elsewhere."""
        mask = response_mask(self.samples)
        values = torch.from_numpy(np.ascontiguousarray(flat, dtype=np.float32).copy())
        return torch.zeros(mask.shape).masked_scatter(mask, values)


def response_mask(samples: SamplesVL) -> Tensor:
    """The (B, A) action mask of batched samples."""
    if samples.action_mask is None:
        raise ValueError("samples are packed: they have no (B, A) action mask")
    return samples.action_mask


def _batched_samples(groups: Sequence[RolloutGroup], pad_token_id: int) -> SamplesVL:
    pairs = [(group, sample) for group in groups for sample in group.samples]
    prompts = [torch.from_numpy(group.prompt_ids.copy()) for group, _ in pairs]
    responses = [torch.from_numpy(sample.token_ids.copy()) for _, sample in pairs]
    prompt_ids = pad_sequence(
        prompts, batch_first=True, padding_value=pad_token_id, padding_side="left"
    )
    response_ids = pad_sequence(responses, batch_first=True, padding_value=pad_token_id)
    prompt_lengths = torch.tensor([len(prompt) for prompt in prompts])
    response_length = torch.tensor([len(response) for response in responses])
    columns = torch.arange(prompt_ids.shape[1])
    prompt_mask = columns[None] >= prompt_ids.shape[1] - prompt_lengths[:, None]
    action_mask = torch.arange(response_ids.shape[1])[None] < response_length[:, None]
    return SamplesVL(
        sequences=torch.cat([prompt_ids, response_ids], dim=1),
        attention_mask=torch.cat([prompt_mask, action_mask], dim=1).long(),  # type: ignore[arg-type]
        action_mask=action_mask,  # type: ignore[arg-type]
        image_num=[len(group.task.prompt.images) for group, _ in pairs],
        video_num=[len(group.task.prompt.videos) for group, _ in pairs],
        num_actions=response_ids.shape[1],
        response_length=response_length,
        total_length=prompt_lengths + response_length,
        references=[group.task.prompt.reference for group, _ in pairs],
        labels=[group.task.prompt.label for group, _ in pairs],
        prompts=[group.task.prompt.id for group, _ in pairs],
        output_texts=[sample.text for _, sample in pairs],
    )
