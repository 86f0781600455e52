"""Advantages of a whole rollout that is held in several batches of their own widths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL

PROCESS_REWARDS = "process_rewards"
"""In an experience's `info`, an entry a sample: its rewards of tokens and steps, (L,), or None."""


def add_advantages(
    experiences: Sequence[ExperienceVL],
    rewards: Sequence[Tensor],
    algorithm: AlgorithmConfig,
    *,
    kl_coef: float,
) -> None:
    """Set advantages, returns and the mask of scored samples, from the rollout as one batch.

    `rewards` are the shaped ones, (B,) each; `info` holds `group_ids`, and gives up its process
    rewards. Groups may lie in several batches, and whitening is over all of them at once, as if
    there were one.
    """
    whole = assemble_experience(
        _as_one_batch(experiences), _scores(experiences, rewards), algorithm, kl_coef=kl_coef
    )
    start = 0
    for experience in experiences:
        size, width = _mask(experience).shape
        rows = slice(start, start + size)
        for name in ("advantages", "returns", "action_mask"):
            values = getattr(whole, name)
            setattr(experience, name, None if values is None else values[rows, :width])
        start += size
        (experience.info or {}).pop(PROCESS_REWARDS, None)


def process_totals(experience: ExperienceVL) -> Tensor:
    """(B,) the sum of each sample's process rewards, 0 where there are none."""
    totals = _process(experience).nan_to_num(nan=0.0)
    return totals.where(_mask(experience).bool(), 0.0).sum(dim=1)


def _process(experience: ExperienceVL) -> Tensor:
    """(B, A) process rewards, NaN where there are none."""
    mask = _mask(experience)
    padded = torch.full(mask.shape, torch.nan, device=mask.device)
    for row, own in enumerate((experience.info or {}).get(PROCESS_REWARDS, ())):
        if own is not None:
            padded[row, mask[row].bool()] = torch.from_numpy(own.copy()).to(mask.device)
    return padded


def _as_one_batch(experiences: Sequence[ExperienceVL]) -> SamplesVL:
    """What advantages need of the samples: the mask, and no tokens."""
    mask = _joined([_mask(experience) for experience in experiences])
    return SamplesVL(
        sequences=mask.new_zeros((len(mask), 0), dtype=torch.long),
        action_mask=mask,  # type: ignore[arg-type]
    )


def _scores(experiences: Sequence[ExperienceVL], rewards: Sequence[Tensor]) -> Scores:
    return Scores(
        rewards=torch.cat(list(rewards)),
        group_ids=torch.cat([(each.info or {})["group_ids"] for each in experiences]),
        action_log_probs=_joined([each.action_log_probs for each in experiences]),
        base_action_log_probs=_joined_if_given([e.base_action_log_probs for e in experiences]),
        values=_joined_if_given([each.values for each in experiences]),
        process_rewards=_joined([_process(each) for each in experiences], torch.nan)
        if any(PROCESS_REWARDS in (each.info or {}) for each in experiences)
        else None,
    )


def _mask(experience: ExperienceVL) -> Tensor:
    if experience.action_mask is None:
        raise ValueError("experience.action_mask is missing")
    return experience.action_mask


def _joined_if_given(tensors: Sequence[Tensor | None]) -> Tensor | None:
    given = [tensor for tensor in tensors if tensor is not None]
    return _joined(given) if given else None


def _joined(tensors: Sequence[Tensor], fill: float = 0.0) -> Tensor:
    """(ΣB, A) of (B, A) tensors of different widths, `fill` where there is nothing."""
    width = max(tensor.shape[1] for tensor in tensors)
    padded = [torch.nn.functional.pad(t, (0, width - t.shape[1]), value=fill) for t in tensors]
    return torch.cat(padded)
