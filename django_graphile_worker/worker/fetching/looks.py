"""What part of the backlog the next claim reads.

A claim reads the backlog from its start, which is cheap: a vacuum removes the index entries of the jobs that are gone,
and PostgreSQL marks them before. Two situations make it expensive.

- A long backlog is claimed faster than a vacuum follows. A claim then resumes where the last claim ended, for a moment.
  If thousands of jobs wait in queues that are held, it reads no jobs in queues meanwhile.
- A transaction, a backup or a replica holds a snapshot. No entry can be removed until it ends, so a claim from the
  start reads the entries of all jobs since then. If claims read many pages in vain, each priority gets a floor: the
  due time up to which everything has been seen, less an overlap for transactions that commit late. Claims begin at the
  floors. Other claims, which take a tenth to a fifth of the time, read what comes in before the floors, slice by
  slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.claims import Claim, Claimed, End, Floor

if TYPE_CHECKING:
    from django_graphile_worker.worker.fetching.slices import Place, Slices

# Seconds. Under a long backlog, a claim resumes where the last claim ended. After this time a claim reads the backlog
# from its start, or from the floors: a job that sorts before the last claimed jobs, or whose queue has just become
# free, waits this long at most, or for the next claim.
WHOLE_LOOK_INTERVAL = 0.1
# Two claims in a row that read more pages than this in vain set the floors: they took some ten milliseconds. The first
# has marked what is gone for all sessions. The floors are removed when all slices together have less than a quarter.
MANY_PAGES = 800
# A look at a slice is followed by the next after this many times its duration; later, while the worker has a backlog.
REST = 4
REST_UNDER_A_BACKLOG = 9
# Seconds in which all slices are looked at, if that takes less than a fifth of it.
SHORTEST_ROUND = 1.0
# Seconds after which another slice has its turn, however few looks at a slice with many jobs there were: the next look
# comes when a slot is free.
LONGEST_TURN = 0.2
# Seconds by which floors stay behind the time of the last look: fewer if claims read more pages than this.
LONGEST_OVERLAP = 1.0
SHORTEST_OVERLAP = 0.1
PAGES_OF_OVERLAP = 60
# The most priorities that have floors.
MOST_FLOORS = 16
# The server's times are whole microseconds. Seconds since the epoch up to this number tell each from the next.
MICROSECOND = 1e-6
LARGEST_EXACT_TIME = 4_000_000_000.0
LAST_ID = 2**63 - 1


class Look(Frozen):
    """The part of the backlog that a claim reads."""

    floors: tuple[Floor, ...] = ()
    # The end of the slice on each priority; empty: up to now.
    ends: tuple[End, ...] = ()
    # Whether the claim resumes behind the last claimed job.
    is_resumed: bool = False
    # Whether the claim reads jobs in queues.
    has_queues: bool = True

    @property
    def is_slice(self) -> bool:
        return bool(self.ends)

    @property
    def may_walk(self) -> bool:
        return not self.is_resumed and not self.is_slice


WHOLE = Look()


class Looks:
    """Chooses what the next claim reads, from what the last claims found and how long they took."""

    def __init__(self) -> None:
        self._last: Claim | None = None
        self._looked_at = -math.inf
        # For each priority on which jobs were seen, the place before which none is left.
        self._seen: dict[int, Floor] = {}
        # Whether the last look from the start found many jobs in queues, and all of the queues held.
        self._queues_are_held = False
        self._slow_claims = 0
        self._overlap = LONGEST_OVERLAP
        self._slices: Slices | None = None
        self._next_slice_at = 0.0
        # Whether the last claim from the floors has left jobs that can run.
        self._has_more = False
        # Whether the last look at a slice has found more jobs than it may claim: then claims from the floors have their
        # turn, although another look is due.
        self._is_turn_of_floors = False
        # The last job that was claimed in the period of which a look found more than it may claim, and when the turn of
        # this period began.
        self._last_in_filled: Claim | None = None
        self._turn_began_at = -math.inf

    @property
    def are_whole(self) -> bool:
        """Whether claims read the backlog from its start."""
        return self._slices is None

    def be_whole(self) -> None:
        """Have the next claim read the backlog from its start."""
        self._slices = None
        self._slow_claims = 0
        self._last = None

    def choose(self, now: float) -> Look:
        """Return what the claim that begins now should read."""
        if self._slices is not None and now >= self._next_slice_at and not self._are_floors_due(now):
            if now - self._turn_began_at > LONGEST_TURN:
                self._slices.end_turn()
            start, end = self._slices.next(self._top())
            return self._slice(start, end, resume_after=self._last_in_filled if self._slices.repeats_filled else None)
        if self._last is not None and now - self._looked_at <= WHOLE_LOOK_INTERVAL:
            floors = self._floors(resume_after=self._last)
            return Look(floors=floors, is_resumed=True, has_queues=not self._queues_are_held)
        return WHOLE if self._slices is None else Look(floors=self._floors())

    def note(self, look: Look, claimed: Claimed, *, began: float, ended: float, max_jobs: int) -> None:
        """Note the answer of a claim that has read this part."""
        if look.is_slice:
            self._note_slice(claimed, ended - began, ended, max_jobs)
        if self._slices is not None and claimed.claims:
            last = claimed.claims[-1]
            self._slices.note_claimed(len(claimed.claims), (last.run_at_epoch, last.id), is_in_slice=look.is_slice)
        if look.is_slice:
            return
        self._is_turn_of_floors = False
        self._has_more = claimed.has_more
        self._last = _last_unqueued(claimed.claims) if claimed.has_more else None
        if look.is_resumed:
            return
        self._looked_at = ended
        self._queues_are_held = _passed_over_queues(claimed)
        pages = claimed.pages or 0
        if self._slices is None:
            self._slow_claims = self._slow_claims + 1 if pages > MANY_PAGES else 0
            if self._slow_claims > 1:
                self._slices = _new_slices()
        else:
            self._adapt_overlap(pages)
        self._note_seen(claimed)

    def until_next(self, now: float) -> float | None:
        """Return the seconds until the next look at a slice; None if claims read the whole backlog."""
        return None if self._slices is None else max(self._next_slice_at - now, 0.0)

    def _slice(self, start: Place, end: Place, resume_after: Claim | None) -> Look:
        """Return a look at a period, on each priority up to its floor: the jobs behind it have not had their turn."""
        floors = [self._seen[priority] for priority in sorted(self._seen)]
        starts = {floor.priority: start for floor in floors}
        if resume_after is not None:
            starts[resume_after.priority] = (resume_after.run_at_epoch, resume_after.id)
        return Look(
            floors=tuple(Floor(floor.priority, *starts[floor.priority], start[0]) for floor in floors),
            ends=tuple(
                End(
                    floor.priority,
                    *_last_place_before(min(end, (floor.run_at, floor.id))),
                    *_last_place_before(min(end, (floor.queued_run_at, 0))),
                )
                for floor in floors
            ),
        )

    def _floors(self, resume_after: Claim | None = None) -> tuple[Floor, ...]:
        floors = dict(self._seen) if self._slices is not None else {}
        if resume_after is not None:
            priority = resume_after.priority
            seen = self._seen.get(priority)
            queued_run_at = -math.inf if seen is None else seen.queued_run_at
            floors[priority] = Floor(priority, resume_after.run_at_epoch, resume_after.id, queued_run_at)
        return tuple(floors[priority] for priority in sorted(floors))

    def _note_seen(self, claimed: Claimed) -> None:
        limit = round(claimed.looked_at - self._overlap, 6)
        if self._top() > claimed.looked_at:
            # The clock was set back: what was seen before says nothing of the jobs that are added now.
            self._seen.clear()
            self._slices = None
        for number, (priority, first_queued) in enumerate(zip(claimed.levels, claimed.queued_floors, strict=True), 1):
            earlier = self._seen.pop(priority, None)
            is_last = claimed.has_more and number == len(claimed.levels)
            end = self._end_of(claimed, priority, earlier) if is_last else (limit, 0)
            queued_run_at = limit if first_queued is None else min(float(first_queued), limit)
            self._seen[priority] = Floor(priority, *min(end, (limit, 0)), queued_run_at)
        if not claimed.has_more:
            # The usual priority, on which other workers run jobs, too.
            self._seen.setdefault(0, Floor(0, limit, 0, limit))
        while len(self._seen) > MOST_FLOORS:
            del self._seen[next(iter(self._seen))]

    def _end_of(self, claimed: Claimed, priority: int, earlier: Floor | None) -> tuple[float, int]:
        """Return up to where a claim that left jobs on this priority has seen all jobs without a queue.

        With the id: thousands of jobs that were added by one transaction have the same due time.
        """
        last = _last_unqueued(claimed.claims)
        if last is not None and last.priority == priority:
            return last.run_at_epoch, last.id
        return (-math.inf, 0) if earlier is None else (earlier.run_at, earlier.id)

    def _adapt_overlap(self, pages: int) -> None:
        if pages > PAGES_OF_OVERLAP:
            self._overlap = max(self._overlap / 2, SHORTEST_OVERLAP)
        elif pages < PAGES_OF_OVERLAP / 2:
            self._overlap = min(self._overlap * 1.5, LONGEST_OVERLAP)

    def _top(self) -> float:
        return max((max(floor.run_at, floor.queued_run_at) for floor in self._seen.values()), default=-math.inf)

    def _note_slice(self, claimed: Claimed, seconds: float, now: float, max_jobs: int) -> None:
        slices = self._slices
        if slices is None:
            return
        is_filled = claimed.has_more or len(claimed.claims) >= max_jobs
        if slices.repeats_filled or not slices.has_filled:
            self._last_in_filled = _last_of_unqueued(claimed) if is_filled else None
        if not slices.repeats_filled:
            self._turn_began_at = now
        slices.note(claimed.pages or 0, self._top(), is_filled=is_filled)
        self._is_turn_of_floors = is_filled
        self._next_slice_at = now + (0.0 if is_filled else self._rest(slices, seconds))
        if slices.pages < MANY_PAGES / 4:
            self._slices = None
            self._slow_claims = 0

    def _are_floors_due(self, now: float) -> bool:
        """Whether the jobs behind the floors have their turn between two looks at a slice with many jobs.

        If no job waits there, a claim from the floors now and then is enough.
        """
        return self._is_turn_of_floors and (self._has_more or now - self._looked_at > WHOLE_LOOK_INTERVAL)

    def _rest(self, slices: Slices, seconds: float) -> float:
        """Return the seconds until the next look, after a look that took ``seconds`` and claimed all that it found.

        If many jobs wait in a slice, as after a long transaction that has added them, the next look is no overhead.
        """
        if slices.has_filled:
            return 0.0
        rest = REST if self._last is None else REST_UNDER_A_BACKLOG
        return max(rest * seconds, SHORTEST_ROUND / (2 * len(slices)))


def _new_slices() -> Slices:
    # Late import: needed only while a snapshot is held.
    from django_graphile_worker.worker.fetching.slices import Slices

    return Slices()


def _last_place_before(place: Place) -> Place:
    """Return the end of a period whose next period begins at a place.

    If the next period begins with a time, the end is at the last id of the time before: a scan that ends at a time does
    not read the jobs of that time.
    """
    run_at, job_id = place
    if job_id or abs(run_at) > LARGEST_EXACT_TIME:
        return place
    return round(run_at - MICROSECOND, 6), LAST_ID


def _passed_over_queues(claimed: Claimed) -> bool:
    """Return True if the claim has read hundreds of jobs in queues and all of the queues were held.

    Few jobs in held queues do not count: a look at them costs nothing, and their queues are often free in a moment.
    """
    is_long = claimed.is_hidden or claimed.walk is not None
    has_queued = any(first is not None and float(first) > -math.inf for first in claimed.queued_floors)
    return is_long and has_queued and all(claim.queue_id is None for claim in claimed.claims)


def _last_of_unqueued(claimed: Claimed) -> Claim | None:
    """Return the job after which the next look at the same slice begins; None if jobs in queues are there as well.

    Only the first jobs of a queue are claimed, and the others are before the last job without a queue.
    """
    has_queued = any(first is not None for first in claimed.queued_floors)
    return None if has_queued else _last_unqueued(claimed.claims)


def _last_unqueued(claims: Sequence[Claim]) -> Claim | None:
    """Return the job after which the next claim resumes.

    A job of a queue may be claimed before its turn, so its place in the backlog does not count.
    """
    return next((claim for claim in reversed(claims) if claim.queue_id is None), None)
