"""Where a generator lays the weights that it fetched, for its engine's processes to load."""

import asyncio
from collections.abc import Sequence

from ray import ObjectRef

from lightrft_ray.sync.buckets import BucketSpec, write_bucket
from lightrft_ray.sync.shared_buffer import SharedBuffer


class WeightInbox:
    """Holds one weight version at a time."""

    def __init__(self) -> None:
        self._buffer = SharedBuffer("lightrft_weights")

    async def fetch(self, buckets: Sequence[tuple[BucketSpec, ObjectRef]]) -> dict[str, object]:
        """Bring buckets here; where they lie, as `ObjectStoreUpdateInfo` has it.

        Each is checked and laid in its place, beside the event loop, while the next is on its way.
        Raises InfrastructureError for one that arrived damaged.
        """
        starts, end = [], 0
        for spec, _ in buckets:
            starts.append(end)
            end += spec.nbytes
        block = self._buffer.reserve(end)

        async def place(at: int, spec: BucketSpec, reference: ObjectRef) -> None:
            parts = await reference
            await asyncio.to_thread(write_bucket, spec, parts, block[at : at + spec.nbytes])

        await asyncio.gather(
            *(place(at, *bucket) for at, bucket in zip(starts, buckets, strict=True))
        )
        located = [(at, spec.to_dict()) for at, (spec, _) in zip(starts, buckets, strict=True)]
        return {"path": self._buffer.path, "buckets": located}
