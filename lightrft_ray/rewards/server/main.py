"""Running a reward server until it is told to stop."""

import asyncio
import signal
import sys

from lightrft_ray.config.serve_reward import ServeRewardConfig
from lightrft_ray.rewards.server.served import open_source
from lightrft_ray.rewards.server.server import RewardServer


async def serve(config: ServeRewardConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Raises UserError before it serves."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    source, name = await open_source(config)
    server = RewardServer(config, source, name)
    try:
        await server.start()
    except BaseException:
        await source.close()
        raise
    try:
        _say(f"serving {name} at {_address(config, server.port)}")
        if server.metrics_port is not None:
            _say(f"metrics at http://{config.server.host}:{server.metrics_port}/metrics")
        await stop.wait()
        _say("stopping: requests in progress are being answered")
    finally:
        await server.drain()


def _address(config: ServeRewardConfig, port: int) -> str:
    scheme = "grpc" if config.server.tls_cert is None else "grpcs"
    return f"{scheme}://{config.server.host}:{port}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
