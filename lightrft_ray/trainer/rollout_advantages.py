"""Advantages of a whole rollout that is held in several batches of their own widths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL


def add_advantages(
    experiences: Sequence[ExperienceVL],
    rewards: Sequence[Tensor],
    algorithm: AlgorithmConfig,
    *,
    kl_coef: float,
) -> None:
    """Set advantages, returns and the mask of scored samples, from the rollout as one batch.

    `rewards` are the shaped ones, (B,) each; `info` holds `group_ids`. Groups may lie in several
    batches, and whitening is over all of them at once, as if there were one.
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
    )


def _mask(experience: ExperienceVL) -> Tensor:
    if experience.action_mask is None:
        raise ValueError("experience.action_mask is missing")
    return experience.action_mask


def _joined_if_given(tensors: Sequence[Tensor | None]) -> Tensor | None:
    given = [tensor for tensor in tensors if tensor is not None]
    return _joined(given) if given else None


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """(ΣB, A) of (B, A) tensors of different widths, 0 where there is nothing."""
    width = max(tensor.shape[1] for tensor in tensors)
    padded = [torch.nn.functional.pad(t, (0, width - t.shape[1])) for t in tensors]
    return torch.cat(padded)
