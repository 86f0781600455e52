"""What a reward server tells Prometheus."""

from http.server import HTTPServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServerMetrics:
    """Metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.samples = Counter(
            "reward_samples",
            "Samples answered: scored, failed, invalid, or without_media",
            ["outcome"],
            registry=self.registry,
        )
        self.refused = Counter(
            "reward_requests_refused",
            "Requests refused, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.queued = Gauge(
            "reward_samples_queued", "Samples waiting or being scored", registry=self.registry
        )
        self.batches_running = Gauge(
            "reward_batches_running", "Calls of the reward going on", registry=self.registry
        )
        self.batch_seconds = Histogram(
            "reward_batch_seconds", "Seconds of one call", buckets=_SECONDS, registry=self.registry
        )
        self.batch_size = Histogram(
            "reward_batch_samples", "Samples of one call", buckets=_SIZES, registry=self.registry
        )
        self.media_bytes = Gauge(
            "reward_media_bytes", "Images and videos kept for later", registry=self.registry
        )


class MetricsEndpoint:
    """Serves metrics over HTTP, from a thread. Raises OSError if the port is taken."""

    def __init__(self, metrics: ServerMetrics, host: str, port: int) -> None:
        self._server: HTTPServer
        self._server, self._thread = start_http_server(port, host, metrics.registry)
        self.port = int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
