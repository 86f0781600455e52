"""The settings of a client of reward services, the same over gRPC and HTTP."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.fields import NonEmptyStr, Section

_ADDRESS = re.compile(r"(?P<scheme>grpcs?|https?)://(?P<host>\[[^\]]+\]|[^/:\s]+)(:\d+)?(/\S*)?")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_SECURE = ("grpcs", "https")


class RemoteRewardConfig(Section):
    """A reward service elsewhere, and how it is asked."""

    remote_rm_url: NonEmptyStr | None = None
    """Addresses of one reward service with commas between them: grpc://HOST:PORT, grpcs://HOST:PORT
    (TLS), or http:// and https:// for LightRFT's and OpenRLHF's JSON (null: no service)."""
    remote_deadline: PositiveFloat = 60
    """Seconds in which all samples of a call must be scored, tries again included."""
    remote_attempt_timeout: PositiveFloat = 30
    """Seconds to wait for the answer to one request."""
    remote_max_attempts: PositiveInt = 4
    """Requests for one batch, the first included; only faults that may pass are tried again."""
    remote_backoff: NonNegativeFloat = 0.2
    """Seconds up to which the second attempt waits at random; each further wait doubles."""
    remote_max_backoff: NonNegativeFloat = 10
    """Longest wait between attempts in seconds."""
    remote_batch_size: PositiveInt = 64
    """Samples of a request."""
    remote_max_concurrency: PositiveInt = 8
    """Requests in flight at once, to all addresses together."""
    remote_max_message_mb: PositiveInt = 64
    """Largest request and largest answer in MB."""
    remote_breaker_failures: PositiveInt = 5
    """Failed requests in a row after which an address gets none for a while."""
    remote_breaker_reset: PositiveFloat = 10
    """Seconds until such an address gets one request, to see whether it is back."""
    remote_score_range: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Smallest and largest score that counts as an answer (null: any finite number)."""
    remote_cache_size: NonNegativeInt = 0
    """Samples whose scores are kept, to be found by content (0: none; needs a deterministic
    reward)."""
    remote_streaming: bool = False
    """Take scores as they come, so that a broken connection costs only those missing (gRPC)."""
    remote_query_key: Literal["query", "queries"] = "query"
    """Name under which an HTTP server wants prompt and response as one text."""
    remote_token_file: NonEmptyStr | None = None
    """File with the bearer token to show (null: none)."""
    remote_token_env: NonEmptyStr | None = None
    """Environment variable of the asking process that holds the bearer token (null: none)."""
    remote_tls_ca: NonEmptyStr | None = None
    """PEM file of the authorities that servers' certificates are checked with (null: the
    system's)."""
    remote_tls_cert: NonEmptyStr | None = None
    """PEM file of this client's certificate, for servers that ask for one (null: none)."""
    remote_tls_key: NonEmptyStr | None = None
    """PEM file of that certificate's key (null: none)."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of `remote_rm_url`; empty where there is no service."""
        if self.remote_rm_url is None:
            return ()
        return tuple(map(str.strip, self.remote_rm_url.split(",")))

    @property
    def speaks_grpc(self) -> bool:
        """Whether the service speaks gRPC and not HTTP."""
        return (self.remote_rm_url or "").lstrip().startswith("grpc")

    @property
    def is_secure(self) -> bool:
        """Whether the addresses are of TLS."""
        return bool(self.addresses) and self.addresses[0].partition("://")[0] in _SECURE

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        self._check_used()
        self._check_addresses()
        if self.addresses:
            self._check_protocol()
        self._check_tls()
        if self.remote_score_range is not None:
            low, high = self.remote_score_range
            if low >= high:
                raise ValueError(
                    f"remote_score_range [{low:g}, {high:g}] is reversed or empty: set the smaller "
                    "bound first, or remote_score_range to null"
                )
        return self

    def _check_used(self) -> None:
        if self.remote_rm_url is None:
            for name, field in type(self).model_fields.items():
                if getattr(self, name) != field.default:
                    raise ValueError(
                        f"{name} does nothing without remote_rm_url: set remote_rm_url to the "
                        f"service's address, or leave {name} out"
                    )

    def _check_token(self, exposed: Sequence[str]) -> None:
        if self.remote_token_file is not None and self.remote_token_env is not None:
            raise ValueError(
                "remote_token_file and remote_token_env both give a token: set one of them to null"
            )
        for name in ("remote_token_file", "remote_token_env"):
            if getattr(self, name) is not None and exposed and not self.is_secure:
                raise ValueError(
                    f"{name} would travel to {exposed[0]} unencrypted: set remote_rm_url to "
                    f"grpcs:// or https://, or {name} to null"
                )

    def _check_addresses(self) -> None:
        matches = [(each, _ADDRESS.fullmatch(each)) for each in self.addresses]
        for address, match in matches:
            if match is None or (match["scheme"].startswith("grpc") and match[3] is None):
                raise ValueError(
                    f"remote_rm_url {address!r} is no address: write grpc://HOST:PORT, "
                    "grpcs://HOST:PORT, http://HOST:PORT/PATH or https://HOST:PORT/PATH"
                )
        schemes = {match["scheme"] for _, match in matches if match}
        if len(schemes) > 1:
            raise ValueError(
                f"remote_rm_url mixes {' and '.join(sorted(schemes))}: the addresses of one "
                "service all have one scheme"
            )
        if len(set(self.addresses)) < len(self.addresses):
            raise ValueError("remote_rm_url has an address twice: give each once")
        exposed = [m["host"] for _, m in matches if m and m["host"] not in _LOCAL_HOSTS]
        self._check_token(exposed)

    def _check_protocol(self) -> None:
        if self.remote_streaming and not self.speaks_grpc:
            raise ValueError(
                "remote_streaming does nothing over HTTP: set remote_rm_url to grpc:// or "
                "grpcs://, or remote_streaming to false"
            )
        if self.remote_query_key != "query" and self.speaks_grpc:
            raise ValueError(
                "remote_query_key does nothing over gRPC: set remote_rm_url to http:// or "
                "https://, or remote_query_key to query"
            )

    def _check_tls(self) -> None:
        for name in ("remote_tls_ca", "remote_tls_cert", "remote_tls_key"):
            if getattr(self, name) is not None and not self.is_secure:
                raise ValueError(
                    f"{name} does nothing without TLS: set remote_rm_url to grpcs:// or https://, "
                    f"or {name} to null"
                )
        if (self.remote_tls_cert is None) != (self.remote_tls_key is None):
            raise ValueError(
                "remote_tls_cert and remote_tls_key belong together: set both, or both to null"
            )


def read_token(config: RemoteRewardConfig) -> bytes | None:
    """The bearer token of a client's settings; None where they name none.

    Raises UserError if the file or the environment variable holds none.
    """
    if config.remote_token_env is None:
        return read_secret(config.remote_token_file, "remote_token_file")
    token = os.environ.get(config.remote_token_env, "").strip()
    if not token:
        raise UserError(
            f"remote_token_env {config.remote_token_env}: the environment variable is not set"
        )
    return token.encode()


def read_secret(path: str | None, name: str) -> bytes | None:
    """The content of a setting's file, white space around it aside; None for None.

    Raises UserError if it cannot be read or is empty.
    """
    if path is None:
        return None
    try:
        content = Path(path).read_bytes().strip()
    except OSError as error:
        raise UserError(f"{name} {path}: cannot be read ({error.strerror})") from error
    if not content:
        raise UserError(f"{name} {path}: the file is empty")
    return content
