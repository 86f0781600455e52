"""Which images and videos a server has, so that each is sent to it once."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

_REMEMBERED = 100_000  # ids, some 10 MB; a server that forgot earlier says so


class MediaLedger:
    """What one server has been sent, by content id. For one event loop."""

    def __init__(self) -> None:
        self._there: OrderedDict[str, None] = OrderedDict()
        self._travelling: dict[str, asyncio.Event] = {}

    async def claim(self, ids: Iterable[str]) -> set[str]:
        """The ids whose bytes the caller's request must carry; `settle` them afterwards.

        What another request carries is waited for. Whoever waits holds no claim, so that requests
        never wait for each other in a circle.
        """
        wanted = set(ids)
        while others := [self._travelling[each] for each in wanted if each in self._travelling]:
            await others[0].wait()
        claimed = wanted - self._there.keys()
        arrival = asyncio.Event()
        self._travelling |= dict.fromkeys(claimed, arrival)
        for each in wanted & self._there.keys():
            self._there.move_to_end(each)
        return claimed

    def settle(self, claimed: Iterable[str], *, arrived: bool) -> None:
        """Say whether the claimed bytes have arrived."""
        for each in claimed:
            self._travelling.pop(each).set()
            if arrived:
                self._there[each] = None
        while len(self._there) > _REMEMBERED:
            self._there.popitem(last=False)

    def forget(self, ids: Iterable[str]) -> None:
        """The server does not have these, or no longer."""
        for each in ids:
            self._there.pop(each, None)
