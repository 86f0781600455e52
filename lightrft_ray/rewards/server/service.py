"""The reward service: requests in, scores or typed errors out."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import NoReturn

import grpc
from grpc.aio import ServicerContext

from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.proto.messages import (
    VERSION,
    ChatDecoder,
    check_version,
    decode_sample,
    encode_score,
)
from lightrft_ray.rewards.proto.reward_pb2_grpc import RewardServiceServicer
from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.server.batcher import Batcher, OverloadedError
from lightrft_ray.rewards.server.media_store import MediaStore, MissingMediaError, RequestMedia
from lightrft_ray.rewards.server.metrics import ServerMetrics

_RETRY_AFTER = (("retry-after-ms", "200"),)


class RewardService(RewardServiceServicer):
    """`lightrft.reward.v1.RewardService`; `description` is what it says of itself."""

    def __init__(
        self,
        batcher: Batcher,
        media: MediaStore,
        metrics: ServerMetrics,
        description: pb.DescribeResponse,
    ) -> None:
        self._batcher = batcher
        self._media = media
        self._metrics = metrics
        self._description = description

    async def Describe(  # noqa: N802 - the protocol's name
        self, request: pb.DescribeRequest, context: ServicerContext
    ) -> pb.DescribeResponse:
        """What is served, and how much at once."""
        await self._check_version(request.version, context)
        return self._description

    async def Score(  # noqa: N802
        self, request: pb.ScoreRequest, context: ServicerContext
    ) -> pb.ScoreResponse:
        """Scores of all samples in one answer."""
        scores: list[pb.SampleScore] = []
        async with aclosing(self._answer(request, context)) as parts:
            async for part in parts:
                scores += part
        return pb.ScoreResponse(version=VERSION, scores=scores)

    async def ScoreStream(  # noqa: N802
        self, requests: AsyncIterator[pb.ScoreRequest], context: ServicerContext
    ) -> AsyncGenerator[pb.ScoreResponse, None]:
        """Scores as they come, of all requests of the stream side by side."""
        ready: asyncio.Queue[list[pb.SampleScore] | None] = asyncio.Queue()

        async def answer(request: pb.ScoreRequest) -> None:
            async with aclosing(self._answer(request, context)) as parts:
                async for part in parts:
                    ready.put_nowait(part)

        async def answer_all() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    async for request in requests:
                        group.create_task(answer(request))
            finally:
                ready.put_nowait(None)

        task = asyncio.create_task(answer_all())
        try:
            while (part := await ready.get()) is not None:
                yield pb.ScoreResponse(version=VERSION, scores=part)
            await task
        finally:
            task.cancel()

    async def _answer(
        self, request: pb.ScoreRequest, context: ServicerContext
    ) -> AsyncGenerator[list[pb.SampleScore], None]:
        """Parts of an answer; ends the call if the request as a whole cannot be answered."""
        await self._check_version(request.version, context)
        await self._check_request(request, context)
        samples, errors = self._decode(request.samples)
        if errors:
            yield errors
        try:
            async with aclosing(self._batcher.score(samples)) as parts:
                async for part in parts:
                    self._count(part)
                    yield [encode_score(score) for score in part]
        except OverloadedError as error:
            context.set_trailing_metadata(_RETRY_AFTER)
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), "busy")

    async def _check_version(self, version: pb.Version, context: ServicerContext) -> None:
        try:
            check_version(version, "the request is of")
        except ValueError as error:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await self._refuse(context, code, str(error), "version")

    async def _check_request(self, request: pb.ScoreRequest, context: ServicerContext) -> None:
        count, most = len(request.samples), self._description.max_batch_samples
        code = grpc.StatusCode.INVALID_ARGUMENT
        if count > most:
            text = f"{count} samples in a request, it takes {most}"
            await self._refuse(context, code, text, "too_many")
        if len({sample.sample_id for sample in request.samples}) < count:
            await self._refuse(context, code, "two samples of a request have one id", "ids")

    async def _refuse(
        self, context: ServicerContext, code: grpc.StatusCode, text: str, reason: str
    ) -> NoReturn:
        self._metrics.refused.labels(reason).inc()
        await context.abort(code, text)
        raise AssertionError("abort raises")

    def _decode(
        self, messages: Sequence[pb.Sample]
    ) -> tuple[list[RewardSample], list[pb.SampleScore]]:
        """Samples to score, and answers for those that cannot be."""
        media, chats = RequestMedia(self._media), ChatDecoder()
        samples: list[RewardSample] = []
        errors: list[pb.SampleScore] = []
        for message in messages:
            try:
                # Videos too before images can fail: bytes that came are kept whatever is missing.
                found = media.resolve([*message.images, *message.videos])
                count = len(message.images)
                samples.append(decode_sample(message, chats, found[:count], found[count:]))
            except MissingMediaError as error:
                self._metrics.samples.labels("without_media").inc()
                errors.append(_lacking(message.sample_id, error))
            except ValueError as error:
                self._metrics.samples.labels("invalid").inc()
                errors.append(_invalid(message.sample_id, str(error)))
        self._metrics.media_bytes.set(self._media.bytes)
        return samples, errors

    def _count(self, scores: Sequence[SampleScore]) -> None:
        failures = sum(score.score is None for score in scores)
        self._metrics.samples.labels("scored").inc(len(scores) - failures)
        self._metrics.samples.labels("failed").inc(failures)


def _lacking(sample_id: str, error: MissingMediaError) -> pb.SampleScore:
    code = pb.SampleError.MEDIA_NOT_FOUND
    details = pb.SampleError(code=code, message=str(error), missing_sha256=error.hashes)
    return pb.SampleScore(sample_id=sample_id, error=details)


def _invalid(sample_id: str, message: str) -> pb.SampleScore:
    details = pb.SampleError(code=pb.SampleError.INVALID_SAMPLE, message=message)
    return pb.SampleScore(sample_id=sample_id, error=details)
