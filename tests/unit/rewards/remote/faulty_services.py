"""Reward services that misbehave on purpose, over gRPC and over HTTP.

A misbehaviour takes the ids of a request and what was right to answer. It gives what is answered.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aiohttp import web
from serving import grpc_server, http_server

from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.proto.messages import VERSION
from lightrft_ray.rewards.proto.reward_pb2_grpc import RewardServiceServicer

FOREVER = 60
LATE = 1.0
PATIENCE = 0.7
"""Seconds that a client of these services waits; a busy machine answers within them."""


class Asked:
    """What a service was asked, request by request."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    @property
    def times(self) -> int:
        """How often it was asked."""
        return len(self.requests)


def _right(sample: pb.Sample) -> pb.SampleScore:
    return pb.SampleScore(sample_id=sample.sample_id, reward=pb.Reward(score=0.5))


class _Service(RewardServiceServicer):
    def __init__(self, fault: str, asked: Asked) -> None:
        self._fault = fault
        self._asked = asked

    async def Score(  # noqa: N802
        self, request: pb.ScoreRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreResponse:
        self._asked.requests.append([each.sample_id for each in request.samples])
        response = pb.ScoreResponse(version=VERSION, scores=map(_right, request.samples))
        await self._before(context)
        _SPOIL_GRPC.get(self._fault, lambda _: None)(response)
        return response

    async def ScoreStream(  # noqa: N802
        self, requests: AsyncIterator[pb.ScoreRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ScoreResponse]:
        """One answer for each sample, and the fault behind the first."""
        async for request in requests:
            self._asked.requests.append([each.sample_id for each in request.samples])
            for index, sample in enumerate(request.samples):
                if index == 1:
                    await self._before(context)
                yield pb.ScoreResponse(version=VERSION, scores=[_right(sample)])

    async def _before(self, context: grpc.aio.ServicerContext) -> None:
        if self._fault == "hangs":
            await asyncio.sleep(FOREVER)
        elif self._fault == "is late once" and self._asked.times == 1:
            await asyncio.sleep(LATE)
        elif self._fault == "fails once" and self._asked.times == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        elif self._fault == "fails inside":
            raise RuntimeError("a mistake of the service")
        elif self._fault == "is busy once" and self._asked.times == 1:
            context.set_trailing_metadata((("retry-after-ms", "50"),))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")


def _rename(response: pb.ScoreResponse) -> None:
    response.scores[0].sample_id = "somebody"


def _not_a_number(response: pb.ScoreResponse) -> None:
    response.scores[0].reward.score = math.nan


def _swell(response: pb.ScoreResponse) -> None:
    response.scores[0].reward.components["x" * 2**21] = 1


def _lack(response: pb.ScoreResponse) -> None:
    """Say of all samples that their images are not here, however often they were sent."""
    for score in response.scores:
        score.error.code = pb.SampleError.MEDIA_NOT_FOUND


def _other_version(response: pb.ScoreResponse) -> None:
    response.version.major = 2


_SPOIL_GRPC: dict[str, Callable[[pb.ScoreResponse], None]] = {
    "answers too few": lambda response: response.scores.__delitem__(0),
    "answers too many": lambda response: response.scores.append(_right(pb.Sample(sample_id="x"))),
    "answers twice": lambda response: response.scores.append(response.scores[0]),
    "answers for others": _rename,
    "answers NaN": _not_a_number,
    "answers nothing": lambda response: response.scores[0].ClearField("result"),
    "answers too much": _swell,
    "speaks version 2": _other_version,
    "keeps no images": _lack,
}

_SPOIL_HTTP: dict[str, Callable[[list[Any]], object]] = {
    "answers too few": lambda rewards: {"rewards": rewards[1:]},
    "answers too many": lambda rewards: {"rewards": [*rewards, 0.5]},
    "answers NaN": lambda rewards: {"rewards": [math.nan, *rewards[1:]]},
    "answers a string": lambda rewards: {"rewards": ["0.5", *rewards[1:]]},
    "answers too much": lambda rewards: {"rewards": rewards, "more": "x" * 2**21},
    "answers without rewards": lambda rewards: {"result": rewards},
}


@asynccontextmanager
async def faulty_grpc(fault: str, asked: Asked) -> AsyncIterator[str]:
    """The address of a gRPC service with a fault; "" is none."""
    async with grpc_server(_Service(fault, asked)) as address:
        yield address


@asynccontextmanager
async def faulty_http(fault: str, asked: Asked) -> AsyncIterator[str]:
    """The address of an HTTP service with a fault; "" is none."""

    async def handle(request: web.Request) -> web.StreamResponse:
        prompts = (await request.json())["prompts"]
        asked.requests.append([str(index) for index in range(len(prompts))])
        return await _respond(fault, asked, request, [0.5] * len(prompts))

    async with http_server(handle) as address:
        yield address


async def _respond(
    fault: str, asked: Asked, request: web.Request, rewards: list[Any]
) -> web.StreamResponse:
    is_first = asked.times == 1
    if fault == "hangs":
        await asyncio.sleep(FOREVER)
    elif fault == "is late once" and is_first:
        await asyncio.sleep(LATE)
    elif fault == "fails once" and is_first:
        return web.Response(status=502, text="starting")
    elif fault == "fails inside":
        raise web.HTTPInternalServerError(text="a mistake of the service")
    elif fault == "is busy once" and is_first:
        return web.Response(status=503, headers={"Retry-After": "0"}, text="later")
    elif fault == "is of another kind":
        return web.Response(text="<html>hello</html>")
    elif fault == "wants a token":
        return web.Response(status=401, text="who are you?")
    elif fault == "breaks off":
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"rewards": [0.5')
        request.transport.abort()  # type: ignore[union-attr]
        return response
    spoil = _SPOIL_HTTP.get(fault, lambda right: {"rewards": right})
    return web.Response(text=json.dumps(spoil(rewards)), content_type="application/json")
