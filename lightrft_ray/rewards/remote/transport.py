"""What the client's policy asks of a protocol."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from lightrft_ray.rewards.sample import RewardSample, SampleScore


class Transport(Protocol):
    """One way to ask a server. It neither waits nor tries again: that is the policy's."""

    shares_media: bool
    """Whether media that repeat within a request travel once."""

    def exchange(
        self, address: str, samples: Sequence[RewardSample], timeout: float
    ) -> AsyncGenerator[list[SampleScore], None]:
        """Ask once. Gives parts of the answer as they come, not yet checked against the request.

        Raises RemoteFault.
        """

    async def check(self, address: str, timeout: float) -> None:
        """Ask for nothing but whether the server would answer. Raises RemoteFault if not."""

    async def close(self) -> None:
        """Close all connections."""
