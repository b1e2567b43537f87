"""The past of the backlog, in slices: periods of due times that claims read in turn.

While a snapshot is held, the index entries of all jobs since then stay, and a scan reads the row of each. To read the
whole past would take seconds. So it is divided into slices that take a few milliseconds each: where the worker has
claimed a number of jobs, and by the pages that the last look at each slice read.

Jobs that were added together have one due time. Such a moment is divided by ids. A slice is either a period between
two times, or a part of one moment.
"""

from __future__ import annotations

import math
from bisect import bisect_right

# A due time, and an id among the jobs of that time: 0 is before all of them.
Place = tuple[float, int]

# Pages that a look at a slice should read: they take a few milliseconds. A slice with more is divided, and neighbours
# that have less than half of it together are joined.
SLICE_PAGES = 200
# A slice ends after this many claimed jobs, or twice as many in a moment. They have fewer pages than a slice should
# have, unless other workers claim jobs there, too.
SLICE_JOBS = 6_000
# Seconds of due time: the newest slice that is cut off from a past without a beginning, and the shortest slice.
FIRST_WIDTH = 30.0
MOMENT = 1e-6
# The smallest number of ids in a part of a moment.
FEWEST_IDS = 100
# Seconds since the epoch: the server has no time before 4713 BC. Jobs due at -infinity stay in the first slice.
EARLIEST_EDGE = -210_000_000_000.0
LAST_ID = 2**63 - 1
# The most edges by which a slice is divided at once.
MOST_EDGES = 10
# Seconds of due time before the floor that every fourth look reads, fewer if that is more than a slice: transactions
# that take long commit jobs there.
RECENT = 10.0
LOOKS_PER_RECENT = 4
# After this many looks at a period with more jobs than they may claim, another slice has its turn.
LOOKS_PER_TURN = 5


class Slices:
    """Periods without a gap, from the beginning to the floor, and whose turn it is."""

    def __init__(self) -> None:
        # The ends of all slices but the last, whose end is the floor, and the pages of each slice.
        self._edges: list[Place] = []
        self._pages = [0]
        self._place = 0
        self._looks = 0
        self._recent = RECENT
        self._is_complete = False
        # A period whose look found more than it may claim: most looks are at it, until nothing is left there.
        self._filled: tuple[Place, Place] | None = None
        self._looks_left_in_turn = 0
        # The jobs that were claimed since the last edge, by whether a look at a slice claimed them: the others are jobs
        # behind the floors. And the highest id of a claimed job.
        self._claimed = {False: 0, True: 0}
        self._highest_id = 0

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def pages(self) -> float:
        """The pages of all slices together; infinite before all have been looked at."""
        return sum(self._pages) if self._is_complete else math.inf

    @property
    def has_filled(self) -> bool:
        """Whether a look at a period found more than it may claim, and no later look has claimed the rest."""
        return self._filled is not None

    @property
    def repeats_filled(self) -> bool:
        """Whether the next look is at that period again."""
        return self._filled is not None and self._looks_left_in_turn > 0

    def next(self, floor: float) -> tuple[Place, Place]:
        """Return the beginning and the end of the period to look at next."""
        return self._filled if self._filled is not None and self._looks_left_in_turn else self._period(floor)

    def note(self, pages: int, floor: float, *, is_filled: bool) -> None:
        """Note the pages of the look at the next period, and whether it found more than it may claim."""
        if self.repeats_filled:
            self._looks_left_in_turn -= 1
            self._filled = self._filled if is_filled else None
            return
        self._looks_left_in_turn = LOOKS_PER_TURN
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

    def end_turn(self) -> None:
        """Have the next look be at another slice, if the filled period has been looked at in this turn."""
        if self._looks_left_in_turn < LOOKS_PER_TURN:
            self._looks_left_in_turn = 0

    def note_claimed(self, count: int, last: Place, *, is_in_slice: bool = False) -> None:
        """Note a number of claimed jobs, whose entries are read from now on, and the place of the last."""
        self._highest_id = max(self._highest_id, last[1])
        self._claimed[is_in_slice] += count
        if self._claimed[is_in_slice] >= SLICE_JOBS and last[0] > EARLIEST_EDGE:
            self._claimed[is_in_slice] = 0
            self._cut(last)

    def _note_recent(self, pages: int) -> None:
        self._recent = self._recent / 2 if pages > SLICE_PAGES else min(self._recent * 1.2, RECENT)

    def _note_slice(self, pages: int, floor: float) -> None:
        place = self._place
        self._pages[place] = pages
        self._place += 1
        if pages > SLICE_PAGES:
            self._insert(place, self._new_edges(place, floor))
        elif place and self._are_small(place) and self._can_join(place):
            self._join(place)
        self._go_on(0)

    def _go_on(self, places: int = 1) -> None:
        self._place += places
        if self._place >= len(self._pages):
            self._place = 0
            self._is_complete = self._is_complete or self._filled is None

    def _period(self, floor: float) -> tuple[Place, Place]:
        if self._is_turn_of_recent:
            return self._start_of_recent(floor), (floor, LAST_ID)
        return self._start(self._place), self._end(self._place, floor)

    def _start_of_recent(self, floor: float) -> Place:
        """Return where the last slices begin that have the pages of one together, or a later time."""
        place = len(self._edges)
        pages = max(self._pages[place], self._claimed[False] * SLICE_PAGES // SLICE_JOBS // 2)
        while place and pages + self._pages[place - 1] <= SLICE_PAGES and not self._start(place - 1)[1]:
            place -= 1
            pages += self._pages[place]
        return max(self._start(place), (round(floor - self._recent, 6), 0))

    @property
    def _is_turn_of_recent(self) -> bool:
        return self._looks % LOOKS_PER_RECENT == 0

    def _start(self, place: int) -> Place:
        return self._edges[place - 1] if place else (-math.inf, 0)

    def _end(self, place: int, floor: float) -> Place:
        return self._edges[place] if place < len(self._edges) else (floor, LAST_ID)

    def _cut(self, at: Place) -> None:
        """End a slice before a time, or, if it begins with that time, at an id."""
        place = bisect_right(self._edges, at)
        start, following = self._start(place), self._edges[place : place + 1]
        if start[0] < at[0]:
            self._insert(place, [(at[0], 0)])
        elif start < at:
            after = _after(at)
            self._insert(place, [at] if following and following[0] <= after else [at, after])
        # Not yet read.
        self._pages[place] = max(self._pages[place], SLICE_PAGES // 2)

    def _insert(self, place: int, edges: list[Place]) -> None:
        """Divide a slice. What has been looked at has its turn in the next round."""
        self._edges[place:place] = edges
        parts = len(edges) + 1
        self._pages[place : place + 1] = [self._pages[place] // parts] * parts
        if place < self._place:
            self._place += len(edges)

    def _new_edges(self, place: int, floor: float) -> list[Place]:
        """Return where to divide a slice: into equal parts, or into longer and longer ones if it has no beginning."""
        start, end = self._start(place), self._end(place, floor)
        if not place:
            width = max(FIRST_WIDTH, floor - end[0])
            edges = [end[0] - width * 2**power for power in reversed(range(MOST_EDGES))]
            return [(round(edge, 6), 0) for edge in edges if edge > EARLIEST_EDGE]
        if end <= _after(start) or end[0] <= start[0]:
            return self._ids_in(place, start, end)
        parts = min(math.ceil(self._pages[place] / SLICE_PAGES), MOST_EDGES + 1)
        times = {round(start[0] + (end[0] - start[0]) * part / parts, 6) for part in range(1, parts)}
        return [(time, 0) for time in sorted(times | {_after(start)[0]}) if start[0] < time < end[0]]

    def _ids_in(self, place: int, start: Place, end: Place) -> list[Place]:
        """Return where to divide a moment."""
        time, first = start
        last = end[1] if end[0] == time and end[1] < LAST_ID else self._highest_id
        parts = min(math.ceil(self._pages[place] / SLICE_PAGES), (last - first) // FEWEST_IDS, MOST_EDGES + 1)
        edges: list[Place] = [(time, first + (last - first) * part // parts) for part in range(1, parts)]
        # The end of the last slice moves on to later times.
        return edges if place < len(self._edges) or not edges else [*edges, _after(start)]

    def _are_small(self, place: int) -> bool:
        pages = self._pages[place - 1 : place + 1]
        return sum(pages) < SLICE_PAGES / 2 or (min(pages) < SLICE_PAGES / 20 and sum(pages) < SLICE_PAGES * 3 / 4)

    def _can_join(self, place: int) -> bool:
        """Tell whether the slice and the one before are together a period between two times, or within a moment."""
        start, end = self._start(place - 1), self._edges[place] if place < len(self._edges) else (math.inf, 0)
        return not (start[1] or end[1]) or end <= _after(start)

    def _join(self, place: int) -> None:
        del self._edges[place - 1]
        self._pages[place - 1 : place + 1] = [self._pages[place - 1] + self._pages[place]]
        self._place -= 1


def _after(place: Place) -> Place:
    """Return the beginning of the next moment."""
    return round(place[0] + MOMENT, 6), 0
