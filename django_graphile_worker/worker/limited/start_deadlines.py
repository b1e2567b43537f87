"""The time by which claimed jobs of a limit with a rate must start.

A rate counts claims, and a job starts a moment after its claim. The windows in the database are longer by that moment,
so that no window of starts has too many. A job that has not started in time is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from django_graphile_worker.sql.claims import Claim

MayBegin = Callable[[Claim], bool]


class StartDeadlines:
    """The deadlines of claimed jobs that have not begun, by their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadlines: dict[int, float] = {}

    def add(self, claims: Iterable[Claim], deadline: float) -> None:
        for claim in claims:
            self._deadlines[claim.id] = deadline

    def after(self, may_begin: MayBegin) -> MayBegin:
        """Return a check that first makes another check, then compares the deadline."""
        deadlines, clock = self._deadlines, self._clock

        def check(claim: Claim) -> bool:
            return may_begin(claim) and (not deadlines or clock() <= deadlines.pop(claim.id, float("inf")))

        return check

    def forget(self, claims: Iterable[Claim]) -> None:
        """Forget claims that have ended; a claim that was returned before a slot took it still has its deadline."""
        for claim in claims:
            self._deadlines.pop(claim.id, None)
