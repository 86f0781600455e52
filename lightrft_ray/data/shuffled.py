"""The endless shuffled order of one source's prompts."""

import hashlib
from array import array
from collections.abc import Sequence
from typing import TypedDict

_ORDERS_KEPT = 2  # a look ahead goes into the next epoch and comes back


class Cursor(TypedDict):
    """Where a stream stands; `taken` counts what it gave, which leaves out what was passed over."""

    epoch: int
    position: int
    taken: int


class ShuffledPlaces:
    """Yields each place of a range once an epoch, in an order given by seed, epoch and names.

    The order sorts the names by a hash. It depends neither on the order in the file nor on a
    library's random generator, so a resumed run meets the same prompts after an upgrade too.
    """

    def __init__(self, names: Sequence[str], places: range, seed: int) -> None:
        """`names` are those of all prompts, of which this stream has `places`; at least one."""
        self._names = names
        self._places = places
        self._seed = seed
        self._orders: dict[int, Sequence[int]] = {}  # of the last two epochs it stood in
        self._seek(0, position=0)
        self.taken = 0

    def advance(self) -> tuple[int, int]:
        """The next place and its epoch; goes on into the next epoch."""
        if self._position == len(self._order):
            self._seek(self._epoch + 1, position=0)
        place = self._order[self._position]
        self._position += 1
        return place, self._epoch

    def cursor(self) -> Cursor:
        """Where it stands."""
        return {"epoch": self._epoch, "position": self._position, "taken": self.taken}

    def go_to(self, cursor: Cursor) -> None:
        """Go on exactly where `cursor` was taken."""
        self.taken = cursor["taken"]
        self._seek(cursor["epoch"], cursor["position"])

    def _seek(self, epoch: int, position: int) -> None:
        order = self._orders.pop(epoch, None)
        self._order = self._order_of(epoch) if order is None else order
        self._orders = dict([*self._orders.items(), (epoch, self._order)][-_ORDERS_KEPT:])
        self._epoch = epoch
        self._position = position

    def _order_of(self, epoch: int) -> Sequence[int]:
        return array("L", sorted(self._places, key=lambda place: self._rank(epoch, place)))

    def _rank(self, epoch: int, place: int) -> bytes:
        key = f"{self._seed}/{epoch}/{self._names[place]}".encode()
        return hashlib.blake2b(key, digest_size=16).digest()
