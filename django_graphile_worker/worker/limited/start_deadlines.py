"""The time by which claimed jobs of a limit with a rate must start.

A rate counts claims, and a job starts a moment after its claim. The windows in the database are longer by that moment,
so that no window of starts has too many. A job that has not started in time is returned.

A worker that is far from the database, or on a busy machine, needs a longer moment. It measures how long its jobs take
to start, and asks with its next claims for as much more as it needs: the starts are then recorded as later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from django_graphile_worker.sql.claims import Claim

MayBegin = Callable[[Claim], bool]

# Seconds. The shortest margin by which windows are longer.
SHORTEST_MARGIN = 0.05
# A job may take so many times as long to start as the slowest of the last jobs.
RESERVE = 2
# How much of the time of a slow start is still counted at the next start.
MEMORY = 0.95


class StartDeadlines:
    """The deadlines of claimed jobs that have not begun, by their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When the claim began, and within how many seconds the job must start.
        self._deadlines: dict[int, tuple[float, float]] = {}
        # How many seconds a job needs from the begin of the claim to its start.
        self._needed = 0.0

    @property
    def slack(self) -> float:
        """How many seconds more than the shortest margin a claim should have."""
        return max(RESERVE * self._needed - SHORTEST_MARGIN, 0.0)

    def add(self, claims: Iterable[Claim], began: float, start_within: float) -> None:
        for claim in claims:
            self._deadlines[claim.id] = began, start_within

    def after(self, may_begin: MayBegin) -> MayBegin:
        """Return a check that first makes another check, then compares the deadline."""
        deadlines = self._deadlines

        def check(claim: Claim) -> bool:
            return may_begin(claim) and (not deadlines or self._is_in_time(claim))

        return check

    def _is_in_time(self, claim: Claim) -> bool:
        deadline = self._deadlines.pop(claim.id, None)
        if deadline is None:
            return True
        began, start_within = deadline
        seconds = self._clock() - began
        self._needed = max(seconds, self._needed * MEMORY)
        return seconds <= start_within

    def forget(self, claims: Iterable[Claim]) -> None:
        """Forget claims that have ended; a claim that was returned before a slot took it still has its deadline."""
        for claim in claims:
            self._deadlines.pop(claim.id, None)
