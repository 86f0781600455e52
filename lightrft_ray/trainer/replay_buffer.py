"""Experience of one or more rollouts, kept sample by sample for training in batches."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightrft_ray.trainer.experience_rows import ExperienceRow, join_rows, split_experience
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.masked import masked_whiten
from lightrft_ray.trainer.media import Medium, SampleMedia, shared_with


class ReplayBuffer:
    """Samples in CPU memory, without padding; pixels once for neighbours with the same images.

    `limit` keeps the newest so many samples, 0 all. With `pin_memory` batches lie in pinned memory
    where there is an accelerator. `seed` decides what `sample` draws.
    """

    def __init__(
        self,
        sample_batch_size: int,
        limit: int = 0,
        *,
        pad_token_id: int = 0,
        pin_memory: bool = False,
        seed: int = 0,
    ) -> None:
        if sample_batch_size < 1 or limit < 0:
            raise ValueError(
                f"sample_batch_size {sample_batch_size} must be 1 or more, limit {limit} 0 or more"
            )
        self._batch_size = sample_batch_size
        self._pad_token_id = pad_token_id
        self._pin_memory = pin_memory
        self._random = random.Random(seed)
        self._rows: deque[ExperienceRow] = deque(maxlen=limit or None)
        self._normalized: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> ExperienceRow:
        return self._rows[index]

    def append(self, experience: ExperienceVL, media: Sequence[SampleMedia] | None = None) -> None:
        """Keep a batch's samples; past the limit the oldest go.

        `media` tells each sample's where the batch has none, so that it need not hold copies.
        Raises ValueError once the buffer is normalised: the new samples would not be.
        """
        if self._normalized:
            names = ", ".join(sorted(self._normalized))
            raise ValueError(f"{names} of the buffer are normalised: clear it before you append")
        previous = self._rows[-1].media if self._rows else None
        for row in split_experience(replace(experience).to_device("cpu"), media):
            previous = _owned(shared_with(previous, row.media), previous)
            self._rows.append(replace(row, media=previous))

    def clear(self) -> None:
        """Forget all samples."""
        self._rows.clear()
        self._normalized.clear()

    def sample(self) -> ExperienceVL:
        """A batch of `sample_batch_size` different samples at random."""
        if len(self._rows) < self._batch_size:
            raise ValueError(
                f"sample_batch_size {self._batch_size}, but the buffer holds {len(self._rows)}"
            )
        return self.collate(self._random.sample(list(self._rows), self._batch_size))

    def collate(self, rows: Sequence[ExperienceRow]) -> ExperienceVL:
        """A padded batch of some samples, pinned if the buffer pins."""
        batch = join_rows(rows, self._pad_token_id)
        return batch.pin_memory() if self._pin_memory else batch

    def normalize(self, name: str = "advantages") -> None:
        """Give a field's actions in the whole buffer mean 0 and variance 1; masked ones give 0.

        Raises ValueError the second time, which would change what the first time made.
        """
        if name in self._normalized:
            raise ValueError(f"{name} of the buffer are normalised already")
        values = self._all_actions(name)
        whitened = masked_whiten(values, self._all_actions("action_mask"))
        parts = whitened.split([row.response_length for row in self._rows])
        for index, part in enumerate(parts):
            row = self._rows[index]
            self._rows[index] = replace(row, per_action={**row.per_action, name: part})
        self._normalized.add(name)

    def _all_actions(self, name: str) -> Tensor:
        if not self._rows or any(name not in row.per_action for row in self._rows):
            raise ValueError(f"{name}: the buffer is empty or its samples have none")
        return torch.cat([row.per_action[name] for row in self._rows])


def _owned(media: SampleMedia, previous: SampleMedia | None) -> SampleMedia:
    """The media in memory of their own, so that the batch they were cut from can go."""
    if previous is None:
        previous = SampleMedia()
    images, videos = (
        own if own is shared else _copied(own)
        for own, shared in ((media.images, previous.images), (media.videos, previous.videos))
    )
    return SampleMedia(images, videos, media.extras)


def _copied(medium: Medium) -> Medium:
    if medium.pixels is None or medium.pixels.nbytes == medium.pixels.untyped_storage().nbytes():
        return medium
    grids = None if medium.grids is None else medium.grids.clone()
    return Medium(medium.count, medium.pixels.clone(), grids)
