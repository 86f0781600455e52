"""Documented batches of prompt groups, padded and packed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tiny_models import PAD, prompt_group
from torch import Tensor

from lightrft_ray.models.rows import PromptGroup
from lightrft_ray.models.sequences import SequenceLayout

TEXT_GROUPS = [prompt_group(8, 3, [2, 3]), prompt_group(9, 6, [1, 4, 2])]
MIXED_GROUPS = [
    prompt_group(3, 5, [4, 1]),
    prompt_group(4, 7, [2, 6], [(4, 4), (2, 4), (2, 2)]),
    prompt_group(6, 4, [5], [(4, 4)]),
]


@dataclass(frozen=True)
class Samples:
    """All samples of some groups; media are those of every sample, one after another."""

    layout: SequenceLayout
    packed: Tensor  # (T,)
    media: dict[str, Tensor]

    @staticmethod
    def of(groups: Sequence[PromptGroup]) -> "Samples":
        pairs = [(group, response) for group in groups for response in group.responses]
        layout = SequenceLayout.of_lengths(
            torch.tensor([len(group.prompt_ids) for group, _ in pairs]),
            torch.tensor([len(response) for _, response in pairs]),
        )
        names = {name for group in groups for name in group.media}
        media = {
            name: torch.cat([group.media[name] for group, _ in pairs if name in group.media])
            for name in sorted(names)
        }
        tokens = [ids for group, response in pairs for ids in (group.prompt_ids, response)]
        return Samples(layout, torch.cat(tokens), media)

    @property
    def padded(self) -> Tensor:
        return self.layout.unpack(self.packed, fill=PAD)

    @property
    def mask(self) -> Tensor:
        return self.layout.attention_mask.long()

    @property
    def num_actions(self) -> int:
        return self.layout.response_width
