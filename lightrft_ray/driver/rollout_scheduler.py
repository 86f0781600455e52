"""Which prompt groups run where and which are trained on next: rules alone, no Ray and no clock.

A *version* is that of the weights that the learner is about to train; generators have the same one
when they are given work. Version v is trained on batch v, which makes v + 1 of it.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lightrft_ray.driver.generator_loads import GeneratorLoads

OverAge = Literal["wait", "drop"]


@dataclass(slots=True)
class _Group:
    """A prompt group under way, expected to have so many tokens.

    `place` is the generator it was last given to (None: none yet), `version` the weights it was
    begun with. It is queued, running or ready.
    """

    tokens: int
    place: int | None = None
    version: int = 0
    state: Literal["queued", "running", "ready"] = "queued"


class RolloutScheduler:
    """Keeps generation at most `max_staleness` = k versions ahead of learning.

    *Capacity*: groups that are queued, running or ready are at most (k + 1) · batch − those taken
    in this version. *Room*: a generator runs at most so many groups, and gets more as they end.
    *Order*: the oldest are trained first. *Age*: a group is trained on by version begun + k at the
    latest. With `wait`, a batch is only taken if, counting batches from now on, those that must be
    in them still fit; with `drop`, groups that grow too old are begun anew.

    *Spare* groups, without staleness only, are begun beside those of a batch, which then are the
    first that end; `cancel_rest` gives up the others.

    Groups are numbered in the order in which they were added.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        max_staleness: int,
        places: int,
        over_age: OverAge,
        last_version: int | None = None,
        room: int | None = None,
        spare: int = 0,
    ) -> None:
        """`last_version` is one that is not trained any more: nothing is generated for it.

        `room` is for groups of one generator (None: without bound).
        """
        if spare and max_staleness:
            raise ValueError("spare groups are for max_staleness 0")
        self._batch_size = batch_size
        self._max_staleness = max_staleness
        self._over_age = over_age
        self._last_version = last_version
        self._groups: dict[int, _Group] = {}
        # Heaps of queued groups: those for any place, and those for the one that they were lost at.
        self._queued: list[int] = []
        self._queued_for: dict[int, list[int]] = {}
        self._spare = spare
        self._ready: set[int] = set()
        # By the version that they were begun with: running and ready groups, and ready ones alone.
        self._begun_by_version: Counter[int] = Counter()
        self._ready_by_version: Counter[int] = Counter()
        self._loads = GeneratorLoads(places, room)
        self._next_number = 0
        self._taken = 0  # in this version
        self.version = 0

    @property
    def in_flight(self) -> list[int]:
        """Groups that were added and neither failed nor were taken, in order."""
        return sorted(self._groups)

    def place_of(self, number: int) -> int:
        """The place that a group was last given to; RuntimeError where it was to none."""
        place = self._groups[number].place
        if place is None:
            raise RuntimeError(f"group {number} was never begun")
        return place

    def wanted(self) -> int:
        """How many groups to add now."""
        ahead = self._max_staleness + 1
        if self._last_version is not None:
            ahead = min(ahead, self._last_version - self.version)
        capacity = ahead * self._batch_size - self._taken
        if capacity > 0:
            capacity += self._spare
        return max(capacity - len(self._groups), 0)

    def add(self, tokens: int = 1) -> int:
        """A new group, queued, that is expected to have so many tokens; its number."""
        number = self._next_number
        self._next_number += 1
        self._groups[number] = _Group(tokens)
        heapq.heappush(self._queued, number)
        return number

    def assign(self) -> list[tuple[int, int]]:
        """Begin all queued groups that can be: (group, place), in order.

        Each goes to the place with the fewest tokens of those with room, or where it was before it
        was lost. While that is down it waits, so that what runs together does so again.
        """
        chosen: list[tuple[int, int]] = []
        for place, lost in list(self._queued_for.items()):
            while lost and self._loads.takes_more(place):
                chosen.append(self._begin(heapq.heappop(lost), place))
            if not lost:
                del self._queued_for[place]
        while self._queued and (least := self._loads.least()) is not None:
            chosen.append(self._begin(heapq.heappop(self._queued), least))
        return sorted(chosen)

    def finished(self, number: int) -> None:
        """A running group has its samples."""
        group = self._running(number)
        group.state = "ready"
        self._loads.end(self.place_of(number), group.tokens)
        self._ready.add(number)
        self._ready_by_version[group.version] += 1

    def failed(self, number: int) -> None:
        """A running group cannot be used: another may take its room."""
        group = self._running(number)
        self._loads.end(self.place_of(number), group.tokens)
        self._begun_by_version[group.version] -= 1
        del self._groups[number]

    def take(self) -> list[int] | None:
        """The groups of a batch, the oldest first; None while it must be waited for."""
        if not self._may_take():
            return None
        oldest = sorted(self._ready, key=lambda number: (self._groups[number].version, number))
        batch = oldest[: self._batch_size]
        for number in batch:
            self._leave_begun(number)
            del self._groups[number]
        self._taken += self._batch_size
        return batch

    def cancel_rest(self) -> list[int]:
        """Give up all groups that are not taken: the numbers of those that were given up."""
        rest = self.in_flight
        for number in rest:
            if self._groups[number].state != "queued":
                self._stop(number)
        self._groups.clear()
        self._queued.clear()
        self._queued_for.clear()
        return rest

    def draw_again(self) -> None:
        """What was taken in this version is not what it will be trained on: make room for more.

        Only without staleness, as the batches of later versions would not fit otherwise.
        """
        if self._taken and self._max_staleness:
            raise RuntimeError("a second batch of one version is only drawn with max_staleness 0")
        self._taken = 0

    def published(self, version: int) -> list[int]:
        """The generators have new weights; the groups that grew too old and are queued again.

        Raises RuntimeError where a group is too old that should have been waited for.
        """
        if version < self.version:
            raise RuntimeError(f"weight version {version} comes after {self.version}")
        self.version = version
        self._taken = 0
        oldest = version - self._max_staleness
        begun = [number for number, group in self._groups.items() if group.state != "queued"]
        over_age = [number for number in begun if self._groups[number].version < oldest]
        if over_age and self._over_age == "wait":
            raise RuntimeError(f"groups {over_age} are older than max_staleness allows")
        for number in over_age:
            self._stop(number)
            self._groups[number].place = None
            heapq.heappush(self._queued, number)
        return sorted(over_age)

    def lost(self, place: int) -> list[int]:
        """A generator is gone: its groups, running or ready, are queued again for its place."""
        self._loads.set_up(place, is_up=False)
        lost = [
            number
            for number, group in self._groups.items()
            if group.state != "queued" and group.place == place
        ]
        for number in lost:
            self._stop(number)
            heapq.heappush(self._queued_for.setdefault(place, []), number)
        return sorted(lost)

    def restored(self, place: int) -> None:
        """A generator is back, with the present weights."""
        self._loads.set_up(place, is_up=True)

    def _may_take(self) -> bool:
        """Whether the oldest ready groups make a batch that leaves no later one too many.

        Of the groups to be trained on by version v + i, those that are not in this batch must fit
        into the i batches that follow.
        """
        if len(self._ready) < self._batch_size:
            return False
        if self._over_age == "drop" or self._spare:
            return True  # what is left is not trained on later
        begun = ready = 0
        for later in range(self._max_staleness + 1):
            version = self.version + later - self._max_staleness
            begun += self._begun_by_version[version]
            ready += self._ready_by_version[version]
            if min(ready, self._batch_size) < begun - later * self._batch_size:
                return False
        return True

    def _begin(self, number: int, place: int) -> tuple[int, int]:
        group = self._groups[number]
        group.state, group.place, group.version = "running", place, self.version
        self._loads.give(place, group.tokens)
        self._begun_by_version[self.version] += 1
        return number, place

    def _stop(self, number: int) -> None:
        """A running or ready group is to be begun anew."""
        group = self._groups[number]
        if group.state == "running":
            self._loads.end(self.place_of(number), group.tokens)
        self._leave_begun(number)
        group.state = "queued"

    def _leave_begun(self, number: int) -> None:
        group = self._groups[number]
        self._begun_by_version[group.version] -= 1
        if group.state == "ready":
            self._ready.discard(number)
            self._ready_by_version[group.version] -= 1

    def _running(self, number: int) -> _Group:
        group = self._groups[number]
        if group.state != "running":
            raise RuntimeError(f"group {number} is {group.state}, not running")
        return group


def by_place(assigned: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """The groups of each place, in order."""
    groups: dict[int, list[int]] = {}
    for number, place in assigned:
        groups.setdefault(place, []).append(number)
    return groups
