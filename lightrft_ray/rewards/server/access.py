"""Who may call: the bearer token, and a word to clients of another version."""

import hmac
from collections.abc import Awaitable, Callable

import grpc
from grpc.aio import ServerInterceptor

from lightrft_ray.rewards.proto.messages import PACKAGE

_HEALTH = "/grpc.health.v1.Health/"  # probes of orchestrators have no token
_ANY_VERSION = f"/{PACKAGE.rpartition('.')[0]}."

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]


class BearerToken(ServerInterceptor):
    """Refuses calls, health checks aside, that do not show the token."""

    def __init__(self, token: bytes) -> None:
        self._expected = b"Bearer " + token

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Let a call through, or answer UNAUTHENTICATED."""
        shown = dict(handler_call_details.invocation_metadata).get("authorization", "")
        # In constant time: how much of a guess is right must not show.
        is_right = hmac.compare_digest(str(shown).encode(), self._expected)
        if is_right or handler_call_details.method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        problem = "the bearer token is wrong" if shown else "it asks for a bearer token"
        return _refusal(grpc.StatusCode.UNAUTHENTICATED, problem)


class OtherVersions(ServerInterceptor):
    """Tells clients of another version of the protocol which one this is."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Let a call through unless nothing answers it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is not None or not method.startswith(_ANY_VERSION):
            return handler
        text = f"this server speaks {PACKAGE}, the call is {method.strip('/')}"
        return _refusal(grpc.StatusCode.UNIMPLEMENTED, text)


def _refusal(code: grpc.StatusCode, text: str) -> grpc.RpcMethodHandler:
    async def refuse(_requests: object, context: grpc.aio.ServicerContext) -> None:
        await context.abort(code, text)

    # Of streams, so that nothing is read before the refusal; other calls take it as well.
    return grpc.stream_stream_rpc_method_handler(refuse)
