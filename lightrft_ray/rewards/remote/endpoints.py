"""The servers of one service: requests go to the least busy, and not to those that fail."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightrft_ray.rewards.remote.circuit_breaker import CircuitBreaker
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault


@dataclass
class Endpoint:
    """One server."""

    address: str
    breaker: CircuitBreaker
    in_flight: int = 0
    refusal: RemoteFault | None = None
    """Why it was last refused; None once it has answered."""


class Endpoints:
    """All servers of a service. For one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        failures: int,
        reset: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoints = [Endpoint(each, CircuitBreaker(failures, reset)) for each in addresses]
        self._clock = clock
        self._changed = asyncio.Event()

    async def acquire(self, avoid: Endpoint | None = None) -> Endpoint:
        """The best server, once one may be asked; `release` it afterwards.

        `avoid` is taken only where there is no other. Raises RemoteFault, at once, where all are
        left alone because they refuse.
        """
        while True:
            now = self._clock()
            allowed = [each for each in self._endpoints if each.breaker.allows(now)]
            if allowed:
                return self._start(min(allowed, key=lambda e: (e is avoid, e.in_flight)), now)
            refusals = [each.refusal for each in self._endpoints if each.refusal is not None]
            if len(refusals) == len(self._endpoints):
                raise refusals[0]
            await self._wait_for_change(now)

    def release(self, endpoint: Endpoint, fault: RemoteFault | None) -> None:
        """Say how the request ended; None for a good answer."""
        endpoint.in_flight -= 1
        kind = None if fault is None else fault.kind
        if kind is None or kind is FaultKind.BUSY:
            endpoint.breaker.succeed()
            endpoint.refusal = None
        elif kind is FaultKind.REFUSED:
            endpoint.breaker.trip(self._clock())
            endpoint.refusal = fault
        else:
            endpoint.breaker.fail(self._clock())
        self._wake()

    def abandon(self, endpoint: Endpoint) -> None:
        """Say that the request was given up for reasons that are not the server's."""
        endpoint.in_flight -= 1
        endpoint.breaker.abandon()
        self._wake()

    def _start(self, endpoint: Endpoint, now: float) -> Endpoint:
        endpoint.breaker.start(now)
        endpoint.in_flight += 1
        # The next of equals: of servers with the same load, each gets its turn.
        self._endpoints.remove(endpoint)
        self._endpoints.append(endpoint)
        return endpoint

    async def _wait_for_change(self, now: float) -> None:
        """Until a probe may start, or a request has ended."""
        probes = [each.breaker.probes_at() for each in self._endpoints]
        times = [each for each in probes if each is not None]
        changed = self._changed
        try:
            async with asyncio.timeout(max(0.0, min(times) - now) if times else None):
                await changed.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
