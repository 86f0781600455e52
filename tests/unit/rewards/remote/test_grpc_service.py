"""Client and server over gRPC: what arrives is what was sent, and images travel once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from proxy import proxy
from reward_samples import image, sample, samples
from serving import LengthSource, client, reward_server

from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.proto.messages import VERSION
from lightrft_ray.rewards.proto.reward_pb2_grpc import RewardServiceStub
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore, failed
from lightrft_ray.rewards.server.server import SERVICE, RewardServer


def _address(server: RewardServer) -> str:
    return f"grpc://127.0.0.1:{server.port}"


class _FixedSource:
    """Gives the scores it was made with, in order."""

    def __init__(self, scores: Sequence[SampleScore]) -> None:
        self._scores = scores

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        return [
            replace(score, sample_id=each.sample_id)
            for each, score in zip(samples, self._scores, strict=True)
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("streaming", [False, True])
def test_a_sample_arrives_whole(streaming: bool) -> None:
    video = EncodedMedia(b"film", "video/mp4")
    jpeg = EncodedMedia(b"\xff\xd8", "image/jpeg")
    parts = [
        {"type": "image"},
        {"type": "text", "text": "Wie viele? 几个?"},
        {"type": "x", "y": [1]},
    ]
    sent = RewardSample(
        sample_id="prompt-1/0",
        prompt="Wie viele? 几个?",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "tool_calls": [{"id": 1}]},
            {"role": "user", "content": parts, "name": "me"},
        ],
        response="drei\n\0",
        response_token_ids=[0, 151_643, 2_147_483_647],
        reference="3",
        label="count",
        images=(jpeg, image("a"), jpeg),
        videos=(video,),
    )

    async def story() -> RewardSample:
        source = LengthSource()
        async with (
            reward_server(source) as server,
            client(_address(server), remote_streaming=streaming) as remote,
        ):
            assert await remote.score([sent]) == [SampleScore("prompt-1/0", 6.0)]
        return source.calls[0][0]

    arrived = asyncio.run(story())
    assert replace(arrived, sample_id=sent.sample_id) == sent


def test_scores_arrive_whole() -> None:
    scores = [
        SampleScore("s0", -0.1, {"format": 1.0, "answer": 0.0}, [0.5, -0.5], [1.0]),
        failed("s1", "ValueError: no answer"),
        SampleScore("s2", 0.0, token_scores=[0.0, 0.0], step_scores=[]),
    ]

    async def story() -> list[SampleScore]:
        async with (
            reward_server(_FixedSource(scores)) as server,
            client(_address(server)) as remote,
        ):
            return await remote.score(samples(3))

    assert asyncio.run(story()) == [
        scores[0],
        failed("s1", "REWARD_FAILED: ValueError: no answer"),
        scores[2],
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_batches_and_requests_lose_and_mix_up_nothing(streaming: bool) -> None:
    asked = [sample(f"s{i}", response="x" * (i % 7)) for i in range(200)]

    async def story() -> tuple[list[SampleScore], list[SampleScore], list[int]]:
        source = LengthSource()
        async with reward_server(source, batching={"max_batch_size": 13}) as server:
            settings = {"remote_batch_size": 9, "remote_streaming": streaming}
            async with (
                client(_address(server), **settings) as remote,
                client(_address(server), **settings) as other,
            ):
                ours, theirs = await asyncio.gather(remote.score(asked), other.score(asked))
        return ours, theirs, [len(call) for call in source.calls]

    ours, theirs, sizes = asyncio.run(story())
    assert ours == theirs == [SampleScore(f"s{i}", float(i % 7)) for i in range(200)]
    assert sum(sizes) == 400 and max(sizes) == 13


@pytest.mark.parametrize("size", [3, 64])
def test_an_image_of_a_group_is_sent_once(size: int) -> None:
    """Also where the group is larger than a request, and in a later call."""
    length = 100_000
    asked = [
        sample(f"{name}{i}", images=[image(name * length)]) for name in "abc" for i in range(8)
    ]

    async def story() -> int:
        async with reward_server(LengthSource()) as server, proxy(server.port) as between:
            address = f"grpc://127.0.0.1:{between.port}"
            async with client(address, remote_batch_size=size) as remote:
                for _ in range(2):
                    scores = await remote.score(asked)
                    assert all(score.score == 1 for score in scores)
            return between.sent

    assert 3 * length < asyncio.run(story()) < 3 * length + 30_000


def test_an_image_that_the_server_forgot_is_sent_again() -> None:
    big = [image(name * 700_000) for name in "ab"]  # one fits into the cache of 1 MB

    async def story() -> list[RewardSample]:
        source = LengthSource()
        async with (
            reward_server(source, server={"media_cache_mb": 1}) as server,
            client(_address(server)) as remote,
        ):
            for index, each in enumerate([big[0], big[1], big[0]]):
                asked = [sample(f"s{index}", images=[each]), sample(f"t{index}")]
                assert all(score.score == 1 for score in await remote.score(asked))
        return [each for call in source.calls for each in call if each.images]

    seen = asyncio.run(story())
    assert [each.images[0].data[:1] for each in seen] == [b"a", b"b", b"a"]


def test_a_request_may_carry_more_than_the_server_keeps() -> None:
    asked = [sample(f"s{n}{i}", images=[image(n * 700_000)]) for n in "ab" for i in range(2)]
    shuffled = [asked[0], asked[2], asked[1], asked[3]]

    async def story() -> list[SampleScore]:
        async with (
            reward_server(LengthSource(), server={"media_cache_mb": 1}) as server,
            client(_address(server)) as remote,
        ):
            return await remote.score(shuffled)

    assert [score.score for score in asyncio.run(story())] == [1.0] * 4


def test_a_sample_that_makes_no_sense_fails_alone() -> None:
    async def story() -> pb.ScoreResponse:
        async with (
            reward_server(LengthSource()) as server,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            good = pb.Sample(sample_id="good", response="abc")
            empty = pb.Sample(sample_id="empty", images=[pb.Media(media_type="image/png")])
            extra = pb.Sample(sample_id="extra", messages=[pb.Message(extra_json="[]")])
            request = pb.ScoreRequest(version=VERSION, samples=[empty, good, extra])
            return await RewardServiceStub(channel).Score(request)

    scores = {each.sample_id: each for each in asyncio.run(story()).scores}
    assert scores["good"].reward.score == 3
    for name in ("empty", "extra"):
        assert scores[name].error.code == pb.SampleError.INVALID_SAMPLE
    assert scores["empty"].error.message == "an image or a video has neither bytes nor a hash"


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (
            pb.ScoreRequest(version=pb.Version(major=2), samples=[pb.Sample()]),
            grpc.StatusCode.FAILED_PRECONDITION,
            "the request is of version 2.0 of the reward protocol, this is 1.0: "
            "both need the same major version",
        ),
        (
            pb.ScoreRequest(version=VERSION, samples=[pb.Sample(), pb.Sample()]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "two samples of a request have one id",
        ),
        (
            pb.ScoreRequest(version=VERSION, samples=[pb.Sample(sample_id=s) for s in "abcde"]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "5 samples in a request, it takes 4",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    streaming: bool, request_: pb.ScoreRequest, code: grpc.StatusCode, text: str
) -> None:
    async def story() -> None:
        batching = {"max_batch_size": 2, "max_queued_samples": 4}
        async with (
            reward_server(LengthSource(), batching=batching) as server,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            stub = RewardServiceStub(channel)
            if not streaming:
                await stub.Score(request_)
            async for _ in stub.ScoreStream([request_]):
                pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(story())
    assert (caught.value.code(), caught.value.details()) == (code, text)


def test_a_call_of_another_version_learns_which_one_is_spoken() -> None:
    async def story() -> None:
        async with (
            reward_server(LengthSource()) as server,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            await channel.unary_unary("/lightrft.reward.v2.RewardService/Score")(b"")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(story())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert str(caught.value.details()).startswith("this server speaks lightrft.reward.v1, the call")


def test_health_and_reflection() -> None:
    async def story() -> None:
        async with reward_server(LengthSource()) as server:
            address = f"127.0.0.1:{server.port}"
            async with grpc.aio.insecure_channel(address) as channel:
                request = health_pb2.HealthCheckRequest(service=SERVICE)
                answer = await health_pb2_grpc.HealthStub(channel).Check(request)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            service = await asyncio.to_thread(_reflect, address)
            assert service == ["Describe", "Score", "ScoreStream"]

    asyncio.run(story())


def _reflect(address: str) -> list[str]:
    """The methods of the service, as a client without the protocol learns them."""
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        return [each.name for each in DescriptorPool(database).FindServiceByName(SERVICE).methods]
