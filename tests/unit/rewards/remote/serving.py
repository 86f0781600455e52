"""Real reward servers on loopback, within a test's own event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aiohttp import web

from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.config.serve_reward import ServeRewardConfig
from lightrft_ray.rewards.proto.reward_pb2_grpc import (
    RewardServiceServicer,
    add_RewardServiceServicer_to_server,
)
from lightrft_ray.rewards.remote.opening import open_remote
from lightrft_ray.rewards.remote.source import RemoteSource
from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.server.server import RewardServer

JsonHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LengthSource:
    """Gives a response's length, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[RewardSample]] = []
        self.is_closed = False

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Lengths in characters."""
        self.calls.append(list(samples))
        return [SampleScore(each.sample_id, float(len(each.response))) for each in samples]

    async def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True


def server_config(**sections: dict[str, Any]) -> ServeRewardConfig:
    """Settings of a server at a free port of this machine."""
    server = {"port": 0, "drain_timeout": 0.0} | sections.pop("server", {})
    reward = {"reward_fn": "exact_match"}
    return ServeRewardConfig.model_validate({"reward": reward, "server": server, **sections})


@asynccontextmanager
async def reward_server(source: Any, **sections: dict[str, Any]) -> AsyncIterator[RewardServer]:
    """A reward server that serves a source."""
    server = RewardServer(server_config(**sections), source, "length")
    await server.start()
    try:
        yield server
    finally:
        await server.drain()


@asynccontextmanager
async def grpc_server(service: RewardServiceServicer) -> AsyncIterator[str]:
    """The address of a server with a service of the test's own."""
    server = grpc.aio.server()
    add_RewardServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def http_server(handler: JsonHandler, tls: Any = None) -> AsyncIterator[str]:
    """The address of an HTTP server that answers POST /get_reward by the handler."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/get_reward", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'http' if tls is None else 'https'}://localhost:{port}/get_reward"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(address: str, **settings: Any) -> AsyncIterator[RemoteSource]:
    """A client that asks twice and does not wait in between."""
    quick = {
        "remote_rm_url": address,
        "remote_deadline": 30.0,
        "remote_attempt_timeout": 20.0,
        "remote_max_attempts": 2,
        "remote_backoff": 0.01,
    }
    source = open_remote(RemoteRewardConfig.model_validate(quick | settings))
    try:
        yield source
    finally:
        await source.close()
