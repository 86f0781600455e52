"""Asking a reward service over HTTP, in JSON."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence

import aiohttp

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import RemoteRewardConfig, read_token
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.remote.json_protocol import decode_answer, encode_request
from lightrft_ray.rewards.sample import RewardSample, SampleScore

_MB = 2**20
_OK, _TOO_MANY, _UNAVAILABLE = 200, 429, 503
_TRANSIENT_BELOW_500 = (408, 425)  # too slow, too early
_REFUSED = (401, 403, 404, 405, 501)
_UNWELCOME = (401, 403)
_SHOWN = 200  # characters of an error's text


class HttpTransport:
    """A `Transport` for http:// and https:// addresses."""

    shares_media = False

    def __init__(self, config: RemoteRewardConfig) -> None:
        self._config = config
        self._limit = config.remote_max_message_mb * _MB
        self._headers = {"Content-Type": "application/json"}
        token = read_token(config)
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token.decode()}"
        self._tls = _tls_context(config) if config.is_secure else True
        self._session: aiohttp.ClientSession | None = None

    async def exchange(
        self, address: str, samples: Sequence[RewardSample], timeout: float
    ) -> AsyncGenerator[list[SampleScore], None]:
        """Ask once. Samples whose media cannot be sent fail alone."""
        # In a thread: images are decoded and encoded.
        request = await asyncio.to_thread(encode_request, samples, self._config.remote_query_key)
        if len(request.body) > self._limit:
            raise RemoteFault(
                FaultKind.INVALID,
                f"a request of {len(request.body)} bytes exceeds remote_max_message_mb "
                f"{self._config.remote_max_message_mb}",
            )
        if request.failures:
            yield request.failures
        if request.samples:
            content = await self._post(address, request.body, timeout)
            yield decode_answer(content, request.samples)

    async def check(self, address: str, timeout: float) -> None:
        """Ask for the address. Any answer will do, as it takes POST alone, but a refusal."""
        session = self._open_session()
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with session.get(
                address, ssl=self._tls, allow_redirects=False, timeout=limit
            ) as response:
                if response.status in _UNWELCOME:
                    raise _status_fault(response, await self._read(response))
        except aiohttp.ClientError as error:
            raise _connection_fault(error) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, address: str, body: bytes, timeout: float) -> bytes:
        session = self._open_session()
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with session.post(
                address, data=body, ssl=self._tls, allow_redirects=False, timeout=limit
            ) as response:
                content = await self._read(response)
        except aiohttp.ClientError as error:
            raise _connection_fault(error) from error
        if response.status != _OK:
            raise _status_fault(response, content)
        return content

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        return self._session

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for part in response.content.iter_any():
            content += part
            if len(content) > self._limit:
                raise RemoteFault(
                    FaultKind.INVALID,
                    "its answer is larger than remote_max_message_mb "
                    f"{self._config.remote_max_message_mb}",
                )
        return bytes(content)


def _connection_fault(error: aiohttp.ClientError) -> RemoteFault:
    if isinstance(error, aiohttp.ClientSSLError):
        return RemoteFault(FaultKind.REFUSED, f"TLS: {error}")
    return RemoteFault(FaultKind.TRANSIENT, f"{type(error).__name__}: {error}")


def _status_fault(response: aiohttp.ClientResponse, content: bytes) -> RemoteFault:
    text = " ".join(content.decode(errors="replace").split())[:_SHOWN]
    status = response.status
    message = f"HTTP {status} {response.reason}: {text}"
    retry_after = response.headers.get("Retry-After", "")
    if status == _TOO_MANY or (status == _UNAVAILABLE and retry_after.isdigit()):
        wait = float(retry_after) if retry_after.isdigit() else None
        return RemoteFault(FaultKind.BUSY, message, retry_after=wait)
    if status in _REFUSED:
        return RemoteFault(FaultKind.REFUSED, message)
    is_transient = status >= 500 or status in _TRANSIENT_BELOW_500
    return RemoteFault(FaultKind.TRANSIENT if is_transient else FaultKind.INVALID, message)


def _tls_context(config: RemoteRewardConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.remote_tls_ca)
        if config.remote_tls_cert is not None:
            context.load_cert_chain(config.remote_tls_cert, config.remote_tls_key)
    except OSError as error:  # which SSLError is, too
        names = f"remote_tls_ca {config.remote_tls_ca}, remote_tls_cert {config.remote_tls_cert}"
        raise UserError(f"{names}: no usable PEM files ({error})") from error
    return context
