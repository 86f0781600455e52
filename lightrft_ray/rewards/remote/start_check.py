"""Asking the servers of a service, before a run depends on them, whether they would answer."""

import asyncio
import random
from collections.abc import Sequence

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.remote.backoff import full_jitter
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.remote.transport import Transport


async def check_servers(config: RemoteRewardConfig, transport: Transport) -> None:
    """UserError for a server that refuses, and if none can be reached.

    One that cannot be reached while others can may come yet: the policy finds it then.
    """
    rng = random.Random()
    faults = await asyncio.gather(
        *(_ask_repeatedly(config, transport, each, rng) for each in config.addresses)
    )
    failed = list(zip(config.addresses, faults, strict=True))
    for address, fault in failed:
        if fault is not None and fault.kind in (FaultKind.REFUSED, FaultKind.INVALID):
            raise UserError(f"remote_rm_url {address}: {fault}")
    if all(faults):
        raise UserError(f"remote_rm_url {_first(failed)}")


async def _ask_repeatedly(
    config: RemoteRewardConfig, transport: Transport, address: str, rng: random.Random
) -> RemoteFault | None:
    """The last fault; None once the server has answered."""
    fault: RemoteFault | None = None
    for attempt in range(config.remote_max_attempts):
        if fault is not None:
            longest = config.remote_max_backoff
            await asyncio.sleep(full_jitter(attempt, config.remote_backoff, longest, rng))
        try:
            async with asyncio.timeout(config.remote_attempt_timeout):
                await transport.check(address, config.remote_attempt_timeout)
            return None
        except TimeoutError:
            seconds = config.remote_attempt_timeout
            fault = RemoteFault(FaultKind.TRANSIENT, f"no answer in {seconds:.3g} s")
        except RemoteFault as error:
            fault = error
            if error.kind in (FaultKind.REFUSED, FaultKind.INVALID):
                return fault
    return fault


def _first(failed: Sequence[tuple[str, RemoteFault | None]]) -> str:
    address, fault = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return f"{address}{more}: no reward service answers there: {fault}"
