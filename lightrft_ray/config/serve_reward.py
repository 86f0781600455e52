"""The settings of a reward server, `launch/serve_reward.py`: a YAML file of three sections."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import NonEmptyStr, Section, reject_unused
from lightrft_ray.config.reward_sources import Argument

Port = Annotated[int, Field(ge=0, le=65535)]


class ServedRewardConfig(Section):
    """What is served."""

    kind: Literal["function", "scalar_model", "judge"] = "function"
    """A Python function, a model with a scalar head, or a chat model that writes verdicts."""
    reward_fn: NonEmptyStr | None = None
    """Ready-made name, path/to/file.py that defines reward_func, or package.module.function
    (function)."""
    arguments: dict[NonEmptyStr, Argument] = Field(default={})
    """Values for parameters of the function's own (function)."""
    processes: PositiveInt = 1
    """Processes that share the samples of a batch (function)."""
    call_timeout: PositiveFloat = 10
    """Seconds after which a call is given up and its process killed (function)."""
    pretrain: NonEmptyStr | None = None
    """Hugging Face name or folder (scalar_model, judge)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Parameter type (scalar_model, judge)."""
    device: NonEmptyStr = "cpu"
    """Where the model runs, such as cuda or cuda:1 (scalar_model, judge)."""
    micro_batch_size: PositiveInt = 8
    """Samples that the model sees at once (scalar_model, judge)."""
    show_images: bool = True
    """Show the model the samples' images; a model of text alone needs false (scalar_model,
    judge)."""
    template: NonEmptyStr | None = None
    """What the judge is asked, with {prompt}, {response}, {reference} and {label} (judge)."""
    verdict_pattern: NonEmptyStr | None = None
    """Regular expression for a line of the answer whose one group is the verdict (judge; null:
    a line "Verdict: ...")."""
    verdict_scores: dict[NonEmptyStr, float] = Field(default={})
    """Scores of the verdicts that are words, such as {yes: 1, no: 0} (judge; empty: a number)."""
    max_new_tokens: PositiveInt = 512
    """Longest answer in tokens (judge)."""

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        function, models, judge = {"function"}, {"scalar_model", "judge"}, {"judge"}
        users: dict[str, set[str]] = {
            **dict.fromkeys(("reward_fn", "arguments", "processes", "call_timeout"), function),
            **dict.fromkeys(("pretrain", "dtype", "device", "micro_batch_size"), models),
            "show_images": models,
            **dict.fromkeys(("template", "verdict_pattern"), judge),
            **dict.fromkeys(("verdict_scores", "max_new_tokens"), judge),
        }
        reject_unused(self, "reward", "kind", self.kind, users)
        needed = {
            "function": ["reward_fn"],
            "scalar_model": ["pretrain"],
            "judge": ["pretrain", "template"],
        }
        for name in needed[self.kind]:
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
