"""How much each generator has to do, and which of them takes more."""

import heapq


class GeneratorLoads:
    """Groups and tokens that the generators were given and have not finished.

    A generator has room for `room` groups (None: for any number). What it was given costs as many
    tokens as it is expected to have.
    """

    def __init__(self, places: int, room: int | None) -> None:
        self._room = room
        self._groups = [0] * places
        self._tokens = [0] * places
        self._is_up = [True] * places
        # Of each place that can take more its tokens; entries that have become wrong are left in.
        self._ranking = [(0, place) for place in range(places)]

    def takes_more(self, place: int) -> bool:
        """Whether a generator is up and has room."""
        has_room = self._room is None or self._groups[place] < self._room
        return self._is_up[place] and has_room

    def least(self) -> int | None:
        """Of the generators that take more, the one with the fewest tokens; None: there is none."""
        while self._ranking:
            tokens, place = self._ranking[0]
            if tokens == self._tokens[place] and self.takes_more(place):
                return place
            heapq.heappop(self._ranking)
        return None

    def give(self, place: int, tokens: int) -> None:
        """A generator gets a group."""
        self._change(place, 1, tokens)

    def end(self, place: int, tokens: int) -> None:
        """A generator has one group less."""
        self._change(place, -1, -tokens)

    def set_up(self, place: int, is_up: bool) -> None:
        """A generator is there, or is not."""
        self._is_up[place] = is_up
        self._rank(place)

    def _change(self, place: int, groups: int, tokens: int) -> None:
        self._groups[place] += groups
        self._tokens[place] += tokens
        self._rank(place)

    def _rank(self, place: int) -> None:
        if self.takes_more(place):
            heapq.heappush(self._ranking, (self._tokens[place], place))
        if len(self._ranking) > 4 * len(self._groups) + 64:
            places = filter(self.takes_more, range(len(self._groups)))
            self._ranking = sorted((self._tokens[each], each) for each in places)
