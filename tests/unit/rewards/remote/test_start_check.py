"""What can be known of a service at the start of a run is said then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from faulty_services import Asked, faulty_http
from serving import LengthSource, client, reward_server

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.proto import reward_pb2 as pb

_NOBODY = "grpc://127.0.0.1:1"


@asynccontextmanager
async def _good(**server: Any) -> AsyncIterator[str]:
    async with reward_server(LengthSource(), server=server) as made:
        yield f"grpc://127.0.0.1:{made.port}"


@asynccontextmanager
async def _version_two() -> AsyncIterator[str]:
    """A server of the protocol's next major version alone."""

    async def describe(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return pb.DescribeResponse(version=pb.Version(major=2)).SerializeToString()

    handlers = {"Describe": grpc.unary_unary_rpc_method_handler(describe)}
    server = grpc.aio.server()
    service = "lightrft.reward.v2.RewardService"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"grpc://127.0.0.1:{port}"
    await server.stop(None)


@asynccontextmanager
async def _unwelcoming() -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=403, text="go away")

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def _check(serve: AbstractAsyncContextManager[str], **settings: Any) -> None:
    async with serve as address, client(address, **settings) as remote:
        await remote.check()


def test_services_that_are_well() -> None:
    asyncio.run(_check(_good()))
    asyncio.run(_check(faulty_http("", Asked())))


@pytest.mark.parametrize(
    ("serve", "settings", "reason"),
    [
        (_version_two, {}, "it has no lightrft.reward.v1.RewardService"),
        (_unwelcoming, {}, "HTTP 403 Forbidden: go away"),
        (_good, {"remote_batch_size": 10_000}, "it takes 8192 samples in a request"),
        (_good, {"remote_max_message_mb": 65}, "it takes 64 MB in a request"),
    ],
)
def test_what_will_not_work_is_an_error_of_the_settings(
    serve: Any, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=r"^remote_rm_url \w+://127.0.0.1:\d+") as caught:
        asyncio.run(_check(serve(), **settings))
    assert reason in str(caught.value)


def test_a_wrong_token_is_known_at_the_start(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("right")
    with pytest.raises(UserError, match="it asks for a bearer token"):
        asyncio.run(_check(_good(token_file=str(token))))


def test_one_server_of_several_may_come_later() -> None:
    async def story() -> None:
        async with _good() as address, client(f"{_NOBODY},{address}") as remote:
            await remote.check()
        async with client("http://127.0.0.1:1/a,http://127.0.0.1:1/b") as remote:
            await remote.check()

    with pytest.raises(UserError, match=r"\(and 1 more\): no reward service answers there: Client"):
        asyncio.run(story())
