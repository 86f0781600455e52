"""The server's queue: back-pressure, clients that go away, and draining."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from reward_samples import samples
from serving import client, reward_server

from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.server.server import RewardServer


def _address(server: RewardServer) -> str:
    return f"grpc://127.0.0.1:{server.port}"


class _SlowSource:
    """Waits to be let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        self.asked += len(samples)
        await self.go.wait()
        return [SampleScore(each.sample_id, 1.0) for each in samples]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("streaming", [False, True])
def test_a_full_queue_asks_clients_to_come_back(streaming: bool) -> None:
    async def story() -> tuple[list[SampleScore], int]:
        source = _SlowSource()
        batching = {"max_batch_size": 2, "max_queued_samples": 2}
        async with reward_server(source, batching=batching) as server:
            settings = {"remote_batch_size": 2, "remote_max_attempts": 20}
            settings |= {"remote_streaming": streaming}
            async with client(_address(server), **settings) as remote:
                asking = asyncio.create_task(remote.score(samples(4)))
                await asyncio.sleep(0.1)
                source.go.set()
                return await asking, remote.figures().failed_requests

    scores, busy = asyncio.run(story())
    assert [score.score for score in scores] == [1.0] * 4
    assert busy >= 1


def test_samples_of_a_client_that_went_away_are_not_scored() -> None:
    async def story() -> int:
        source = _SlowSource()
        async with reward_server(source, batching={"max_batch_size": 1}) as server:
            async with client(_address(server), remote_attempt_timeout=0.1) as remote:
                scores = await remote.score(samples(3))
                assert all("no answer in 0.1 s" in str(score.error) for score in scores)
            await asyncio.sleep(0.05)
            source.go.set()
            await asyncio.sleep(0.05)
        return source.asked

    # One of the first attempt was with the reward, and perhaps one of the second.
    assert asyncio.run(story()) <= 2


def test_draining_answers_what_is_here_and_takes_no_more() -> None:
    async def story() -> None:
        source = _SlowSource()
        server_settings = {"drain_timeout": 5.0}
        async with (
            reward_server(source, server=server_settings) as server,
            client(_address(server), remote_attempt_timeout=5.0) as remote,
        ):
            asking = asyncio.create_task(remote.score(samples(2)))
            while not source.asked:
                await asyncio.sleep(0.01)
            draining = asyncio.create_task(server.drain())
            await asyncio.sleep(0.05)
            async with client(_address(server), remote_max_attempts=1) as late:
                (refused,) = await late.score(samples(1))
                assert "UNAVAILABLE" in str(refused.error)
            source.go.set()
            assert [score.score for score in await asking] == [1.0, 1.0]
            start = time.monotonic()
            await draining
            assert time.monotonic() - start < 2

    asyncio.run(story())
