"""Where a generator lays the weights that it fetched, for its engine's processes to load."""

import asyncio
from collections.abc import Iterator, Sequence

import torch
from ray import ObjectRef
from torch import Tensor

from lightrft_ray.sync.buckets import BucketSpec, unpack_bucket, write_bucket
from lightrft_ray.sync.shared_buffer import SharedBuffer


class WeightInbox:
    """Holds one weight version at a time."""

    def __init__(self) -> None:
        self._buffer = SharedBuffer("lightrft_weights")
        self._places: list[tuple[int, BucketSpec]] = []
        self._end = 0

    async def fetch(self, buckets: Sequence[tuple[BucketSpec, ObjectRef]]) -> None:
        """Bring buckets here, in the place of those before.

        Each is checked and laid in its place, beside the event loop, while the next is on its way.
        Raises InfrastructureError for one that arrived damaged.
        """
        self._places, self._end = [], 0
        for spec, _ in buckets:
            self._places.append((self._end, spec))
            self._end += spec.nbytes
        block = self._buffer.reserve(self._end)

        async def place(at: int, spec: BucketSpec, reference: ObjectRef) -> None:
            parts = await reference
            await asyncio.to_thread(write_bucket, spec, parts, block[at : at + spec.nbytes])

        await asyncio.gather(
            *(
                place(at, spec, reference)
                for (at, spec), (_, reference) in zip(self._places, buckets, strict=True)
            )
        )

    def located(self) -> dict[str, object]:
        """Where the buckets lie, as `ObjectStoreUpdateInfo` has it."""
        buckets = [(at, spec.to_dict()) for at, spec in self._places]
        return {"path": self._buffer.path, "buckets": buckets}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name, view) of each tensor."""
        block = torch.from_numpy(self._buffer.reserve(self._end))
        for at, spec in self._places:
            yield from unpack_bucket(spec, block[at : at + spec.nbytes])
