"""A reward server from its start to its drained end."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import read_secret
from lightrft_ray.config.serve_reward import ServerConfig, ServeRewardConfig
from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.proto.messages import PACKAGE, VERSION
from lightrft_ray.rewards.proto.reward_pb2_grpc import add_RewardServiceServicer_to_server
from lightrft_ray.rewards.sample import RewardSource
from lightrft_ray.rewards.server.access import BearerToken, OtherVersions
from lightrft_ray.rewards.server.batcher import Batcher
from lightrft_ray.rewards.server.media_store import MediaStore
from lightrft_ray.rewards.server.metrics import MetricsEndpoint, ServerMetrics
from lightrft_ray.rewards.server.service import RewardService

_MB = 2**20
SERVICE = f"{PACKAGE}.RewardService"


class RewardServer:
    """Serves a reward. `source` is closed with it. For one event loop."""

    def __init__(self, config: ServeRewardConfig, source: RewardSource, name: str) -> None:
        self._config = config
        self._source = source
        self._name = name
        self._metrics = ServerMetrics()
        self._endpoint: MetricsEndpoint | None = None

    async def start(self) -> None:
        """Listen. Raises UserError if the address or the files of the settings are no good."""
        settings = self._config.server
        self._server = grpc.aio.server(
            interceptors=_interceptors(settings), options=_options(settings)
        )
        self.port = _bind(self._server, settings)
        self._batcher = Batcher(self._source, self._config.batching, self._metrics)
        description = pb.DescribeResponse(
            version=VERSION,
            reward=self._name,
            max_message_bytes=settings.max_message_mb * _MB,
            max_batch_samples=self._config.batching.max_queued_samples,
        )
        store = MediaStore(settings.media_cache_mb * _MB)
        service = RewardService(self._batcher, store, self._metrics, description)
        add_RewardServiceServicer_to_server(service, self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        await self._server.start()
        for each in ("", SERVICE):
            await self._health.set(each, health_pb2.HealthCheckResponse.SERVING)
        self._start_metrics(settings)

    @property
    def metrics_port(self) -> int | None:
        """Where Prometheus finds metrics; None where it does not."""
        return None if self._endpoint is None else self._endpoint.port

    async def drain(self) -> None:
        """Take no new requests, let those here end within `drain_timeout`, and close all."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._config.server.drain_timeout)
        await self._batcher.close()
        await self._source.close()
        if self._endpoint is not None:
            self._endpoint.close()

    def _start_metrics(self, settings: ServerConfig) -> None:
        if settings.metrics_port is None:
            return
        try:
            self._endpoint = MetricsEndpoint(self._metrics, settings.host, settings.metrics_port)
        except OSError as error:
            raise UserError(
                f"server.metrics_port {settings.metrics_port}: cannot listen ({error.strerror})"
            ) from error


def _interceptors(settings: ServerConfig) -> list[grpc.aio.ServerInterceptor]:
    token = read_secret(settings.token_file, "server.token_file")
    return [*([] if token is None else [BearerToken(token)]), OtherVersions()]


def _options(settings: ServerConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_mb * _MB),
        ("grpc.max_send_message_length", settings.max_message_mb * _MB),
        ("grpc.so_reuseport", 0),  # two servers on one port would each get some of the requests
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_frame_size", 4 * _MB),
        ("grpc.http2.lookahead_bytes", 16 * _MB),
        ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
    ]


def _bind(server: grpc.aio.Server, settings: ServerConfig) -> int:
    """The port that the server listens at."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.port}"
    try:
        if settings.tls_cert is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, _credentials(settings)))
    except RuntimeError as error:
        raise UserError(
            f"server.host {settings.host}, server.port {settings.port}: cannot listen there; is "
            "the address this machine's, the port free, and are the TLS files PEM?"
        ) from error


def _credentials(settings: ServerConfig) -> grpc.ServerCredentials:
    key = read_secret(settings.tls_key, "server.tls_key")
    chain = read_secret(settings.tls_cert, "server.tls_cert")
    authorities = read_secret(settings.tls_client_ca, "server.tls_client_ca")
    return grpc.ssl_server_credentials([(key, chain)], authorities, authorities is not None)
