"""Asking a reward service over gRPC. An image's bytes go to each server once."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from grpc.aio import AioRpcError, Channel

from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.proto.messages import (
    VERSION,
    check_version,
    decode_score,
    encode_samples,
)
from lightrft_ray.rewards.proto.reward_pb2_grpc import RewardServiceStub
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.remote.grpc_channel import as_fault, open_channel, token_metadata
from lightrft_ray.rewards.remote.media_ledger import MediaLedger
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore

_SENDINGS = 2  # a server that lacks media it was sent a moment ago will not keep them either


@dataclass
class _Server:
    channel: Channel
    stub: RewardServiceStub
    ledger: MediaLedger = field(default_factory=MediaLedger)


class GrpcTransport:
    """A `Transport` for grpc:// and grpcs:// addresses."""

    shares_media = True

    def __init__(self, config: RemoteRewardConfig) -> None:
        self._config = config
        self._metadata = token_metadata(config)
        self._servers: dict[str, _Server] = {}

    async def exchange(
        self, address: str, samples: Sequence[RewardSample], timeout: float
    ) -> AsyncGenerator[list[SampleScore], None]:
        """Ask once, and once more with the bytes for samples whose media the server has not."""
        server = self._server(address)
        left = {sample.sample_id: sample for sample in samples}
        for _ in range(_SENDINGS):
            without_media: dict[str, RewardSample] = {}
            async with aclosing(self._send(server, list(left.values()), timeout)) as responses:
                async for response in responses:
                    lacking = [score for score in response.scores if _lacks_media(score)]
                    for score in lacking:
                        server.ledger.forget(each.hex() for each in score.error.missing_sha256)
                        if score.sample_id in left:
                            without_media[score.sample_id] = left[score.sample_id]
                    yield [decode_score(s) for s in response.scores if not _lacks_media(s)]
            if not without_media:
                return
            left = without_media
        raise RemoteFault(FaultKind.INVALID, "it does not keep the images and videos it is sent")

    async def check(self, address: str, timeout: float) -> None:
        """Ask for the server's version and limits. Raises RemoteFault if they do not fit."""
        request = pb.DescribeRequest(version=VERSION)
        call = self._server(address).stub.Describe
        try:
            response = await call(request, timeout=timeout, metadata=self._metadata)
        except AioRpcError as error:
            raise as_fault(error) from error
        _check_version(response.version)
        self._check_limits(response)

    async def close(self) -> None:
        """Close all channels."""
        for server in self._servers.values():
            await server.channel.close()
        self._servers = {}

    def _check_limits(self, server: pb.DescribeResponse) -> None:
        wanted, most = self._config.remote_batch_size, server.max_batch_samples
        if wanted > most:
            raise RemoteFault(
                FaultKind.INVALID,
                f"it takes {most} samples in a request: set remote_batch_size {wanted} to no more",
            )
        wanted, most = self._config.remote_max_message_mb, server.max_message_bytes // 2**20
        if wanted > most:
            raise RemoteFault(
                FaultKind.INVALID,
                f"it takes {most} MB in a request: set remote_max_message_mb {wanted} to no more",
            )

    def _server(self, address: str) -> _Server:
        if address not in self._servers:
            channel = open_channel(address, self._config)
            self._servers[address] = _Server(channel, RewardServiceStub(channel))
        return self._servers[address]

    async def _send(
        self, server: _Server, samples: Sequence[RewardSample], timeout: float
    ) -> AsyncGenerator[pb.ScoreResponse, None]:
        """The answers to one request; settles what became of the media it carried."""
        claimed = await server.ledger.claim(_media_ids(samples))
        arrived = False
        try:
            request = _encode(samples, claimed)
            async with aclosing(self._call(server.stub, request, timeout)) as responses:
                async for response in responses:
                    _check_version(response.version)
                    if not arrived:
                        arrived = True
                        server.ledger.settle(claimed, arrived=True)
                    yield response
        except AioRpcError as error:
            raise as_fault(error) from error
        finally:
            if not arrived:
                server.ledger.settle(claimed, arrived=False)

    async def _call(
        self, stub: RewardServiceStub, request: pb.ScoreRequest, timeout: float
    ) -> AsyncGenerator[pb.ScoreResponse, None]:
        if not self._config.remote_streaming:
            yield await stub.Score(request, timeout=timeout, metadata=self._metadata)
            return
        call = stub.ScoreStream([request], timeout=timeout, metadata=self._metadata)
        try:
            async for response in call:
                yield response
        finally:
            call.cancel()


def _media_ids(samples: Sequence[RewardSample]) -> set[str]:
    return {each.content_id for sample in samples for each in (*sample.images, *sample.videos)}


def _encode(samples: Sequence[RewardSample], claimed: set[str]) -> pb.ScoreRequest:
    """A request in which the bytes of claimed media stand where they first come."""
    to_carry = set(claimed)

    def encode_medium(medium: EncodedMedia) -> pb.Media:
        if medium.content_id in to_carry:
            to_carry.remove(medium.content_id)
            return pb.Media(media_type=medium.media_type, data=medium.data)
        return pb.Media(media_type=medium.media_type, sha256=bytes.fromhex(medium.content_id))

    return pb.ScoreRequest(version=VERSION, samples=encode_samples(samples, encode_medium))


def _lacks_media(score: pb.SampleScore) -> bool:
    return score.HasField("error") and score.error.code == pb.SampleError.MEDIA_NOT_FOUND


def _check_version(version: pb.Version) -> None:
    try:
        check_version(version, "it answered in")
    except ValueError as error:
        raise RemoteFault(FaultKind.REFUSED, str(error)) from error
