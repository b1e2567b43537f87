"""The past of the backlog, in slices: periods of due times that claims read in turn.

While a snapshot is held, the index entries of all jobs since then stay, and a scan reads the row of each. To read the
whole past would take seconds. So it is divided into slices that take a few milliseconds each, by the time that the last
look at each took.
"""

from __future__ import annotations

import math

# Seconds that a look at a slice should take. A slice that takes longer is divided, and neighbours that take less than
# half of it together are joined.
SLICE_COST = 0.005
# Seconds of due time: the newest slice that is cut off from a past without a beginning, and the shortest slice.
FIRST_WIDTH = 30.0
SHORTEST_WIDTH = 0.01
# Seconds of due time before the floor that every other look reads: transactions that take long commit jobs there.
RECENT = 10.0


class Slices:
    """Periods of due times without a gap, from the beginning to the floor, and whose turn it is."""

    def __init__(self) -> None:
        # The ends of all slices but the last, whose end is the floor, and the seconds that each slice took.
        self._edges: list[float] = []
        self._costs: list[float] = [0.0]
        self._place = 0
        self._is_recents_turn = True
        self._is_complete = False

    def __len__(self) -> int:
        return len(self._costs)

    @property
    def cost(self) -> float:
        """The seconds that the last looks at all slices took together; infinite before all have been looked at."""
        return sum(self._costs) if self._is_complete else math.inf

    def next(self, floor: float) -> tuple[float, float]:
        """Return the beginning and the end of the period to look at next."""
        if self._is_recents_turn:
            return floor - RECENT, floor
        return self._start(self._place), self._end(self._place, floor)

    def note(self, seconds: float, floor: float, *, is_filled: bool) -> None:
        """Note the duration of the look at the next period; a look that found more than it may claim is repeated."""
        if is_filled:
            return
        self._is_recents_turn = not self._is_recents_turn
        if not self._is_recents_turn:
            return
        place, self._place = self._place, self._place + 1
        self._costs[place] = seconds
        if seconds > SLICE_COST:
            self._divide(place, floor)
        elif place and self._costs[place - 1] + seconds < SLICE_COST / 2:
            self._join(place)
        if self._place >= len(self._costs):
            self._place, self._is_complete = 0, True

    def _start(self, place: int) -> float:
        return self._edges[place - 1] if place else -math.inf

    def _end(self, place: int, floor: float) -> float:
        return self._edges[place] if place < len(self._edges) else floor

    def _divide(self, place: int, floor: float) -> None:
        start, end = self._start(place), self._end(place, floor)
        edge = (start + end) / 2 if place else end - max(FIRST_WIDTH, floor - end)
        if end - edge < SHORTEST_WIDTH:
            return
        self._edges.insert(place, edge)
        half = self._costs[place] / 2
        self._costs[place : place + 1] = [half, half]
        self._place += 1

    def _join(self, place: int) -> None:
        del self._edges[place - 1]
        self._costs[place - 1 : place + 1] = [self._costs[place - 1] + self._costs[place]]
        self._place -= 1
