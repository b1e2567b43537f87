"""The past of the backlog, in slices: periods of due times that claims read in turn.

While a snapshot is held, the index entries of all jobs since then stay, and a scan reads the row of each. To read the
whole past would take seconds. So it is divided into slices that take a few milliseconds each, by the pages that the
last look at each read.
"""

from __future__ import annotations

import math

# Pages that a look at a slice should read: they take a few milliseconds. A slice with more is divided, and neighbours
# that have less than half of it together are joined.
SLICE_PAGES = 200
# Seconds of due time: the newest slice that is cut off from a past without a beginning, and the shortest slice.
FIRST_WIDTH = 30.0
SHORTEST_WIDTH = 0.01
# Seconds since the epoch: the server has no time before 4713 BC. Jobs due at -infinity stay in the first slice.
EARLIEST_EDGE = -210_000_000_000.0
# The most edges by which a slice is divided at once.
MOST_EDGES = 10
# Seconds of due time before the floor that every fourth look reads, fewer if that is more than a slice: transactions
# that take long commit jobs there.
RECENT = 10.0
LOOKS_PER_RECENT = 4


class Slices:
    """Periods of due times without a gap, from the beginning to the floor, and whose turn it is."""

    def __init__(self) -> None:
        # The ends of all slices but the last, whose end is the floor, and the pages of each slice.
        self._edges: list[float] = []
        self._pages = [0]
        self._place = 0
        self._looks = 0
        self._recent = RECENT
        self._is_complete = False
        # A period whose look found more than it may claim: every second look is at it, until nothing is left there.
        self._filled: tuple[float, float] | None = None
        self._is_turn_of_filled = False

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def pages(self) -> float:
        """The pages of all slices together; infinite before all have been looked at."""
        return sum(self._pages) if self._is_complete else math.inf

    def next(self, floor: float) -> tuple[float, float]:
        """Return the beginning and the end of the period to look at next."""
        if self._filled is not None and self._is_turn_of_filled:
            return self._filled
        return self._period(floor)

    def note(self, pages: int, floor: float, *, is_filled: bool) -> None:
        """Note the pages of the look at the next period, and whether it found more than it may claim."""
        if self._filled is not None and self._is_turn_of_filled:
            self._is_turn_of_filled = False
            self._filled = self._filled if is_filled else None
            return
        self._is_turn_of_filled = True
        if is_filled and self._filled is None:
            self._filled = self._period(floor)
        was_recent = self._is_turn_of_recent
        self._looks += 1
        if was_recent:
            self._note_recent(pages)
        elif is_filled:
            # Its pages are not known: the look ended before it came to the end of the slice.
            self._go_on()
        else:
            self._note_slice(pages, floor)

    def _note_recent(self, pages: int) -> None:
        self._recent = self._recent / 2 if pages > SLICE_PAGES else min(self._recent * 1.2, RECENT)

    def _note_slice(self, pages: int, floor: float) -> None:
        place = self._place
        self._pages[place] = pages
        self._place += 1
        if pages > SLICE_PAGES:
            self._divide(place, floor)
        elif place and self._pages[place - 1] + pages < SLICE_PAGES / 2:
            self._join(place)
        self._go_on(0)

    def _go_on(self, places: int = 1) -> None:
        self._place += places
        if self._place >= len(self._pages):
            self._place = 0
            self._is_complete = self._is_complete or self._filled is None

    def _period(self, floor: float) -> tuple[float, float]:
        if self._is_turn_of_recent:
            return floor - self._recent, floor
        return self._start(self._place), self._end(self._place, floor)

    @property
    def _is_turn_of_recent(self) -> bool:
        return self._looks % LOOKS_PER_RECENT == 0

    def _start(self, place: int) -> float:
        return self._edges[place - 1] if place else -math.inf

    def _end(self, place: int, floor: float) -> float:
        return self._edges[place] if place < len(self._edges) else floor

    def _divide(self, place: int, floor: float) -> None:
        edges = self._new_edges(place, floor)
        self._edges[place:place] = edges
        parts = len(edges) + 1
        self._pages[place : place + 1] = [self._pages[place] // parts] * parts
        self._place += len(edges)

    def _new_edges(self, place: int, floor: float) -> list[float]:
        """Return where to divide a slice: into equal parts, or into longer and longer ones if it has no beginning."""
        start, end = self._start(place), self._end(place, floor)
        if not place:
            width = max(FIRST_WIDTH, floor - end)
            edges = [end - width * 2**power for power in reversed(range(MOST_EDGES))]
            return [edge for edge in edges if edge > EARLIEST_EDGE]
        parts = min(math.ceil(self._pages[place] / SLICE_PAGES), int((end - start) / SHORTEST_WIDTH), MOST_EDGES + 1)
        return [start + (end - start) * part / parts for part in range(1, parts)]

    def _join(self, place: int) -> None:
        del self._edges[place - 1]
        self._pages[place - 1 : place + 1] = [self._pages[place - 1] + self._pages[place]]
        self._place -= 1
