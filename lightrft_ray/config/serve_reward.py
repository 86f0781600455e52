"""The settings of a reward server, `launch/serve_reward.py`: a YAML file of three sections."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import NonEmptyStr, Section, reject_unused

Port = Annotated[int, Field(ge=0, le=65535)]


class ServedRewardConfig(Section):
    """What is served."""

    kind: Literal["function", "scalar_model", "judge"] = "function"
    """A Python function, a reward model with a scalar head, or a model that writes verdicts."""
    reward_fn: NonEmptyStr | None = None
    """Ready-made name, path/to/file.py that defines reward_func, or package.module.function
    (function)."""

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        needed = {"function": "reward_fn"}
        users = {"reward_fn": {"function"}}
        reject_unused(self, "reward", "kind", self.kind, users)
        name = needed[self.kind]
        if getattr(self, name) is None:
            raise ValueError(f"reward.{name} is missing: reward.kind {self.kind} needs it")
        return self


class ServerConfig(Section):
    """Where and to whom it is served."""

    host: NonEmptyStr = "127.0.0.1"
    """Address to listen at; 0.0.0.0 is every network interface, reachable from elsewhere."""
    port: Port = 50051
    """Port to listen at (0: any that is free, which is printed)."""
    token_file: NonEmptyStr | None = None
    """File with the bearer token that clients must show (null: none)."""
    tls_cert: NonEmptyStr | None = None
    """PEM file of the server's certificate chain (null: no TLS)."""
    tls_key: NonEmptyStr | None = None
    """PEM file of the certificate's key."""
    tls_client_ca: NonEmptyStr | None = None
    """PEM file of the authorities whose certificates clients must show (null: they need none)."""
    max_message_mb: PositiveInt = 64
    """Largest request and largest answer in MB."""
    media_cache_mb: PositiveInt = 512
    """Images and videos kept in MB, so that clients need not send them again."""
    metrics_port: Port | None = None
    """Port of Prometheus metrics at the same address (0: any that is free; null: none)."""
    drain_timeout: NonNegativeFloat = 30
    """Seconds that requests have to end after SIGTERM."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError(
                "server.tls_cert and server.tls_key belong together: set both, or both to null"
            )
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError(
                "server.tls_client_ca does nothing without TLS: set server.tls_cert and "
                "server.tls_key, or server.tls_client_ca to null"
            )
        if self.metrics_port is not None and self.metrics_port == self.port != 0:
            raise ValueError(
                f"server.port and server.metrics_port are both {self.port}: set them apart"
            )
        return self


class BatchingConfig(Section):
    """How samples of all clients are put together and how many may wait."""

    max_batch_size: PositiveInt = 64
    """Samples scored in one call of the reward."""
    max_wait_ms: NonNegativeFloat = 2
    """Milliseconds that a batch which is not full waits for more samples."""
    max_concurrent_batches: PositiveInt = 1
    """Calls of the reward at once."""
    max_queued_samples: PositiveInt = 8192
    """Samples waiting or being scored, past which clients are asked to come back later."""
    batch_timeout: PositiveFloat = 60
    """Seconds that one call of the reward may take."""

    @model_validator(mode="after")
    def _queue_holds_a_batch(self) -> Self:
        if self.max_queued_samples < self.max_batch_size:
            raise ValueError(
                f"batching.max_queued_samples {self.max_queued_samples} is less than "
                f"batching.max_batch_size {self.max_batch_size}: no batch would ever be full"
            )
        return self


class ServeRewardConfig(Section):
    """A whole server."""

    reward: ServedRewardConfig
    server: ServerConfig = ServerConfig()
    batching: BatchingConfig = BatchingConfig()
