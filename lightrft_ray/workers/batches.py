"""What learners and critics get for their updates, and the micro-batches made of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch

from lightrft_ray.models.positions import PositionRule
from lightrft_ray.models.rows import PromptGroup, RowLayout, Rows, build_rows
from lightrft_ray.trainer.aggregation import Denominators
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.blank_image import without_last_sample
from lightrft_ray.workers.messages import GroupTokens, fetch_groups, split_micro_batches

_PER_ACTION = (
    "action_log_probs",
    "base_action_log_probs",
    "values",
    "returns",
    "advantages",
    "action_mask",
)
_PER_ACTION_INFO = ("token_weights",)  # of `experience.info`


@dataclass(frozen=True)
class DemonstrationBatch:
    """One rank's demonstrations of an optimizer step; `n_tokens` counts those of all ranks."""

    groups: tuple[GroupTokens, ...]
    n_tokens: int


@dataclass(frozen=True)
class RankBatch:
    """One rank's share of an optimizer step.

    `experience` holds the (B, A) tensors of the share's samples, in the order of `groups`;
    denominators are those of the whole step. `is_first` marks a training step's first optimizer
    step, in which the policy is still the one that the samples came from.
    """

    groups: tuple[GroupTokens, ...]
    experience: ExperienceVL
    denominators: Denominators
    kl_coef: float
    is_first: bool
    demonstrations: DemonstrationBatch | None = None


@dataclass(frozen=True)
class RowBuilder:
    """How a worker lays out rows; `blank` goes with micro-batches that have no image."""

    layout: RowLayout
    positions: PositionRule
    pad_token_id: int
    device: torch.device
    blank: PromptGroup | None = None

    def build(self, groups: Sequence[GroupTokens]) -> Rows:
        """Rows of a micro-batch, on the worker's device; fetches the media."""
        return self.lay_out(fetch_groups(groups)).to(self.device)

    def lay_out(self, groups: Sequence[PromptGroup]) -> Rows:
        """Rows of groups whose media are here; their samples alone have actions."""
        layout = (self.layout, self.positions, self.pad_token_id)
        if self.blank is None or any(group.media for group in groups):
            return build_rows(groups, *layout)
        return without_last_sample(build_rows([*groups, self.blank], *layout))


def micro_batches(
    batch: RankBatch, size: int, builder: RowBuilder
) -> Iterator[tuple[Rows, ExperienceVL | None]]:
    """(rows, experience) of at most `size` samples each, built one at a time.

    Demonstrations come last; None is in the place of their experience.
    """
    start = 0
    for groups in split_micro_batches(batch.groups, size):
        rows = builder.build(groups)
        count, width = rows.action_mask.shape
        part = select_samples(batch.experience, slice(start, start + count), width)
        yield rows, part.to_device(builder.device)
        start += count
    if batch.demonstrations is not None:
        for groups in split_micro_batches(batch.demonstrations.groups, size):
            yield builder.build(groups), None


def select_samples(
    experience: ExperienceVL, samples: slice | torch.Tensor, width: int | None = None
) -> ExperienceVL:
    """The per-action tensors of some samples, cut to `width` actions; the rest is left out."""
    chosen = {
        name: getattr(experience, name)[samples, :width]
        for name in _PER_ACTION
        if getattr(experience, name) is not None
    }
    info = {
        name: values[samples, :width]
        for name, values in (experience.info or {}).items()
        if name in _PER_ACTION_INFO
    }
    empty = {field.name: None for field in fields(experience) if field.name != "sequences"}
    no_tokens = experience.sequences[samples, :0]  # workers have the token ids in their groups
    return replace(experience, sequences=no_tokens, **{**empty, **chosen, "info": info})
