"""Who may ask a reward service, and whom a client believes: tokens and certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from certificates import Authority, Pair
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reward_samples import samples
from serving import LengthSource, client, http_server, reward_server, server_config

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.remote.opening import open_remote
from lightrft_ray.rewards.server.server import RewardServer


class Files:
    """Certificates and tokens of a small world."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "authority")
        self.stranger = Authority(folder, "stranger")
        self.server = self.authority.issue("server")
        self.elsewhere = self.authority.issue("elsewhere", host="other.example")
        self.client = self.authority.issue("client")
        self.forged = self.stranger.issue("forged")
        self.token, self.wrong_token = str(folder / "token"), str(folder / "wrong")
        Path(self.token).write_text("s3cret\n")
        Path(self.wrong_token).write_text("guess")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("access"))


def _tls(pair: Pair, **more: str) -> dict[str, str]:
    return {"tls_cert": pair.cert, "tls_key": pair.key, **more}


def _shows(pair: Pair) -> dict[str, str]:
    return {"remote_tls_cert": pair.cert, "remote_tls_key": pair.key}


@asynccontextmanager
async def _grpc(settings: dict[str, Any]) -> AsyncIterator[str]:
    async with reward_server(LengthSource(), server=settings) as server:
        yield f"{'grpcs' if 'tls_cert' in settings else 'grpc'}://localhost:{server.port}"


@asynccontextmanager
async def _http(settings: dict[str, Any]) -> AsyncIterator[str]:
    """The same settings for a JSON server."""
    context = None
    if "tls_cert" in settings:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings["tls_cert"], settings["tls_key"])
    if context is not None and "tls_client_ca" in settings:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(settings["tls_client_ca"])
    token = Path(settings["token_file"]).read_text().strip() if "token_file" in settings else None

    async def handle(request: web.Request) -> web.Response:
        if token is not None and request.headers.get("Authorization") != f"Bearer {token}":
            return web.Response(status=401, text="the bearer token is wrong")
        responses = (await request.json())["responses"]
        return web.json_response({"rewards": [len(each) for each in responses]})

    async with http_server(handle, context) as address:
        yield address


async def _ask(serve: Any, settings: dict[str, Any], shown: dict[str, Any]) -> str:
    """Why there is no reward, "" if there is one."""
    async with (
        serve(settings) as address,
        client(address, remote_max_attempts=3, **shown) as remote,
    ):
        (score,) = await remote.score(samples(1))
        assert score.score == (None if score.error else 1.0)
        assert remote.figures().requests == 1  # what is refused is not tried again
        return score.error or ""


def _cases(files: Files) -> dict[str, tuple[dict[str, Any], dict[str, Any], str]]:
    """Settings of the server and of the client, and what goes wrong."""
    ca = {"remote_tls_ca": files.authority.file}
    mutual = _tls(files.server, tls_client_ca=files.authority.file)
    return {
        "token": ({"token_file": files.token}, {"remote_token_file": files.token}, ""),
        "wrong token": (
            {"token_file": files.token},
            {"remote_token_file": files.wrong_token},
            "the bearer token is wrong",
        ),
        "no token": ({"token_file": files.token}, {}, "token"),
        "TLS": (_tls(files.server), ca, ""),
        "TLS and token": (
            _tls(files.server, token_file=files.token),
            ca | {"remote_token_file": files.token},
            "",
        ),
        "server of a stranger": (_tls(files.forged), ca, "CERTIFICATE_VERIFY_FAILED|handshake"),
        "server of another name": (_tls(files.elsewhere), ca, "ostname"),
        "mutual TLS": (mutual, ca | _shows(files.client), ""),
    }


@pytest.mark.parametrize("serve", [_grpc, _http])
@pytest.mark.parametrize(
    "case",
    [
        "token",
        "wrong token",
        "no token",
        "TLS",
        "TLS and token",
        "server of a stranger",
        "server of another name",
        "mutual TLS",
    ],
)
def test_access(files: Files, serve: Any, case: str) -> None:
    settings, shown, reason = _cases(files)[case]
    error = asyncio.run(_ask(serve, settings, shown))
    if reason:
        assert any(word in error for word in reason.split("|")), error
    else:
        assert error == ""


@pytest.mark.parametrize("serve", [_grpc, _http])
@pytest.mark.parametrize("shown", ["none", "forged"])
def test_a_client_without_a_good_certificate_gets_nothing(
    files: Files, serve: Any, shown: str
) -> None:
    """With TLS 1.3 a client learns of it only when it reads: the connection breaks."""
    mutual = _tls(files.server, tls_client_ca=files.authority.file)
    settings: dict[str, Any] = {"remote_tls_ca": files.authority.file}
    settings |= _shows(files.forged) if shown == "forged" else {}

    async def story() -> None:
        async with serve(mutual) as address, client(address, **settings) as remote:
            (score,) = await remote.score(samples(1))
            assert score.score is None and score.error

    asyncio.run(story())


def test_health_needs_no_token(files: Files) -> None:
    async def story() -> int:
        async with (
            reward_server(LengthSource(), server={"token_file": files.token}) as server,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            stub = health_pb2_grpc.HealthStub(channel)
            return (await stub.Check(health_pb2.HealthCheckRequest())).status

    assert asyncio.run(story()) == health_pb2.HealthCheckResponse.SERVING


def test_what_is_wrong_with_files_is_said_before_anything_is_asked(files: Files) -> None:
    async def opens(address: str, **settings: Any) -> None:
        async with client(address, **settings):
            pass

    with pytest.raises(UserError, match=r"remote_token_file nowhere: cannot be read"):
        asyncio.run(opens("grpc://localhost:1", remote_token_file="nowhere"))
    with pytest.raises(UserError, match=r"remote_tls_ca .*token.*: no usable PEM files"):
        asyncio.run(opens("https://localhost:1", remote_tls_ca=files.token))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"token_file": "nowhere"}, "server.token_file nowhere: cannot be read"),
        ({"tls_cert": "nowhere", "tls_key": "nowhere"}, "server.tls_key nowhere: cannot be read"),
        ({"host": "192.0.2.1"}, "server.host 192.0.2.1, server.port 0: cannot listen there"),
    ],
)
def test_a_server_that_cannot_start_says_why(settings: dict[str, Any], reason: str) -> None:
    async def story() -> None:
        await RewardServer(server_config(server=settings), LengthSource(), "x").start()

    with pytest.raises(UserError) as caught:
        asyncio.run(story())
    assert reason in str(caught.value)


def test_a_port_that_is_taken_is_named() -> None:
    async def story() -> None:
        async with reward_server(LengthSource()) as server:
            second = RewardServer(
                server_config(server={"port": server.port}), LengthSource(), "second"
            )
            with pytest.raises(UserError, match=rf"server.port {server.port}: cannot listen"):
                await second.start()

    asyncio.run(story())


def test_without_an_address_there_is_nothing_to_open() -> None:
    from lightrft_ray.config.remote_reward import RemoteRewardConfig

    with pytest.raises(UserError, match="remote_rm_url is not set"):
        open_remote(RemoteRewardConfig())
