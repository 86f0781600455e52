"""Channels to a reward service over gRPC, and what their errors mean."""

import grpc
from grpc.aio import AioRpcError, Channel

from lightrft_ray.config.remote_reward import RemoteRewardConfig, read_secret, read_token
from lightrft_ray.rewards.proto.messages import PACKAGE
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata of a busy server: milliseconds to wait at least."""

_MB = 2**20
_TRANSIENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,  # a server or proxy that goes away; this client's own is no error
    grpc.StatusCode.INTERNAL,  # a broken stream
    grpc.StatusCode.UNKNOWN,  # the service raised
)
_REFUSED = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.FAILED_PRECONDITION,
)
_BAD_CERTIFICATE = ("SSL_ERROR_SSL", "verification check failed")  # both are UNAVAILABLE to gRPC


def open_channel(address: str, config: RemoteRewardConfig) -> Channel:
    """A channel to grpc:// or grpcs://HOST:PORT. Raises UserError for files that are unreadable."""
    target = address.partition("://")[2]
    options = [
        ("grpc.max_send_message_length", config.remote_max_message_mb * _MB),
        ("grpc.max_receive_message_length", config.remote_max_message_mb * _MB),
        ("grpc.enable_retries", 0),  # the policy tries again, and counts
        ("grpc.enable_http_proxy", 0),  # services are within the cluster
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.max_frame_size", 4 * _MB),
        ("grpc.http2.lookahead_bytes", 16 * _MB),
        ("grpc.http2.write_buffer_size", 4 * _MB),
    ]
    if not config.is_secure:
        return grpc.aio.insecure_channel(target, options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=read_secret(config.remote_tls_ca, "remote_tls_ca"),
        private_key=read_secret(config.remote_tls_key, "remote_tls_key"),
        certificate_chain=read_secret(config.remote_tls_cert, "remote_tls_cert"),
    )
    return grpc.aio.secure_channel(target, credentials, options)


def token_metadata(config: RemoteRewardConfig) -> tuple[tuple[str, str], ...]:
    """Metadata that show the token of the settings; empty without one."""
    token = read_token(config)
    return () if token is None else (("authorization", f"Bearer {token.decode()}"),)


def as_fault(error: AioRpcError) -> RemoteFault:
    """What a gRPC error means for the policy."""
    code, details = error.code(), error.details() or ""
    message = f"{code.name}: {' '.join(details.split())}"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(error, message)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        hint = f"it has no {PACKAGE}.RewardService: no reward service, or one of another version"
        return RemoteFault(FaultKind.REFUSED, f"{message}; {hint}")
    if code in _REFUSED or any(sign in details for sign in _BAD_CERTIFICATE):
        return RemoteFault(FaultKind.REFUSED, message)
    return RemoteFault(FaultKind.TRANSIENT if code in _TRANSIENT else FaultKind.INVALID, message)


def _exhausted(error: AioRpcError, message: str) -> RemoteFault:
    """A message over a limit stays over it; a server that is busy says when to come back."""
    wait = str(dict(error.trailing_metadata() or ()).get(RETRY_AFTER, ""))
    if not wait.isdigit():
        return RemoteFault(FaultKind.INVALID, message)
    return RemoteFault(FaultKind.BUSY, message, retry_after=int(wait) / 1000)
