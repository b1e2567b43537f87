"""Where the next claim begins to read the backlog.

A claim from the start of the backlog sees every job that may run, and mostly it is cheap. Three situations make it
expensive or useless:

- A transaction, a backup or a replica holds a snapshot. The index entries of all jobs that ran since then stay, and
  a claim from the start reads them.
- Jobs that may not run stand before those that may: in queues that are held, or with a forbidden flag. A claim reads a
  bounded number of them, and the next goes on behind.
- A long backlog is claimed faster than a vacuum follows.

So a claim says where it stopped, and the next claim goes on there. From time to time one begins at the start again and
finds what has come in before that place: a job with an earlier due time or a better priority, or one of a queue that
was held. The longer that takes, the less often.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta

from django_graphile_worker.sql.claims import START, Claimed, Continuation

# A pass through the backlog is followed by the next after this many times its duration. Its duration is what remains
# when so many seconds are subtracted for each claimed job.
REST = 9
SECONDS_PER_JOB = 0.00005
# So many seconds at most; more if a claim was cancelled.
MAX_REST = 9.0
MAX_REST_AFTER_CANCEL = 60.0
# Seconds: a shorter pass that has seen everything is followed by the next at once.
QUICK = 0.01
# Seconds until the next pass if there is something left to see: a job that sorts before the last claimed jobs, under a
# backlog; a job that another transaction has locked; a job of a task that was added while the pass was under way.
MIN_REST = 0.1
# Of so many priorities, those with the latest due jobs, the places are known.
MAX_PRIORITIES = 16
# More than any priority.
END = 32768


class Scan:
    """Passes through the backlog, each made by one claim or several; between them, claims look at what is new."""

    def __init__(self) -> None:
        # Where the next claim goes on, unless it begins at the start.
        self._continuation = START
        # Where steps over held queues go on in the next pass. Full claims may not come to the last queue.
        self._queue = 0
        self._began_at_first_queue = True
        # Whether a claim of the pass has met jobs that other transactions have locked, and whether it took several
        # claims: the notification of what comes in before the place of the first calls only for the next of them.
        self._is_waiting = self._took_several = False
        # The priorities that had due jobs, the latest last.
        self._priorities = dict.fromkeys([0])
        # Whether a pass is under way, how many seconds it took so far, and when the next begins.
        self._is_under_way = False
        self._seconds = 0.0
        self._next_pass_at = -math.inf
        # How many seconds the last two passes took. The quicker counts: the first one of a session is slow, for its
        # statements are planned, and any can be delayed on a busy server.
        self._last_two = (0.0, 0.0)
        # For which jobs the pass looks, and the last claim.
        self._terms: Hashable = None
        self._last_terms: Hashable = None
        # Whether the last claim was the end of a pass, and no job was left that could run. So it is before the first.
        self.has_seen_all = True

    @property
    def is_quick(self) -> bool:
        """Whether a claim from the start of the backlog costs little."""
        return min(self._last_two) < QUICK

    def begin_again(self) -> None:
        """Have the next claim begin at the start. If there is none, nothing is left to see."""
        self._is_under_way, self._next_pass_at = False, -math.inf
        self._is_waiting = self._took_several = False
        self.has_seen_all = True

    def behind(self, now: float, terms: Hashable) -> Continuation:
        """Return where the next claim goes on.

        A claim begins at the start if it looks for other jobs than the last pass: its tasks or flags have changed. But
        a pass that is under way comes to its end first.
        """
        self._last_terms = terms
        if self._is_under_way or (now < self._next_pass_at and terms == self._terms):
            return self._continuation
        self._terms = terms
        self._is_under_way, self._is_waiting, self._took_several, self._seconds = True, False, False, 0.0
        self._began_at_first_queue = self._queue == 0
        return START._replace(queue=self._queue)

    def note(self, claimed: Claimed, *, ended: float) -> None:
        """Note the answer of a claim.

        The server's time counts: a slow network or a busy process says nothing about the backlog.
        """
        self._go_on_behind(claimed.continuation)
        if not claimed.has_more:
            self._continuation = self._continuation._replace(queue=None)
        if not claimed.is_cut:
            self._queue = self._continuation.queue or 0
        if self._is_under_way:
            self._is_waiting = self._is_waiting or claimed.is_waiting
            self._took_several = self._took_several or claimed.is_cut
            self._seconds += max(claimed.seconds - SECONDS_PER_JOB * len(claimed.claims), 0.0)
            self.has_seen_all = not claimed.has_more and self._began_at_first_queue
            if not claimed.is_cut:
                self._end_pass(ended, is_backlog=claimed.has_more)
        else:
            self.has_seen_all = False
            if not claimed.has_more and self.is_quick:
                # The backlog is at its end.
                self._next_pass_at = ended

    def note_cancelled(self, *, began: float, ended: float) -> None:
        """Note that a claim was cancelled, because it took too long: the next claims look at what is new."""
        # By the clock of this machine, which may differ from that of the server.
        a_minute_ago = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
        if not self._is_under_way:
            # Behind the places there is too much, too.
            self._go_on_behind(Continuation(seen_priority=END, seen_until=a_minute_ago))
            return
        seen_until = self._continuation.seen_until or a_minute_ago
        self._go_on_behind(self._continuation._replace(seen_priority=END, seen_until=seen_until))
        self._seconds += ended - began
        self._is_under_way, self.has_seen_all = False, False
        self._last_two = (self._seconds, self._seconds)
        self._next_pass_at = ended + min(REST * self._seconds, MAX_REST_AFTER_CANCEL)

    def until_next_pass(self, now: float) -> float | None:
        """Return the seconds until a pass must begin; None if the last claim was a whole one.

        After that, an idle worker waits: a job that comes in is announced, or found by the next poll, and a claim that
        looks only at what is new is followed by a pass.
        """
        is_idle = self.has_seen_all and not self._is_waiting and not self._took_several
        return None if is_idle else max(self._next_pass_at - now, 0.0)

    def _end_pass(self, ended: float, *, is_backlog: bool) -> None:
        self._is_under_way = False
        self._last_two = (self._last_two[1], self._seconds)
        if not (is_backlog or self.has_seen_all):
            self._next_pass_at = ended
            return
        rest = 0.0 if self.is_quick else min(REST * min(self._last_two), MAX_REST)
        if is_backlog or self._is_waiting or self._took_several or self._last_terms != self._terms:
            rest = max(rest, MIN_REST)
        self._next_pass_at = ended + rest

    def _go_on_behind(self, continuation: Continuation) -> None:
        """Have the next claim go on there, also on the priorities on which the last one found nothing."""
        places = {place["priority"]: place for place in continuation.places}
        for priority in places:
            self._priorities.pop(priority, None)
            self._priorities[priority] = None
        while len(self._priorities) > MAX_PRIORITIES:
            del self._priorities[next(iter(self._priorities))]
        until = continuation.seen_until
        for priority in self._priorities:
            if priority < continuation.seen_priority:
                seen = {"priority": priority, "run_at": until, "id": 0, "queued_run_at": until, "queued_id": 0}
                places.setdefault(priority, seen)
        known = [places[priority] for priority in self._priorities if priority in places]
        self._continuation = continuation._replace(places=known)
