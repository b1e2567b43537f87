"""The walk: claims that pass over jobs that may not be claimed, to the jobs behind them."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import MAX_STEPS, Claimed

# After a walk over several claims has ended, the next walk begins after this many times its duration.
REST = 4


class Walk:
    """The place of the walk, kept from one claim to the next, and the limit on the database time that it takes."""

    def __init__(self) -> None:
        self.place: Any = None
        self._seconds = 0.0
        self._rests_until = 0.0

    def steps(self, now: float) -> int:
        """Return how many steps of the walk the next claim may take."""
        return 0 if now < self._rests_until else MAX_STEPS

    def note(self, claimed: Claimed, *, began: float, ended: float) -> None:
        """Note the result of a claim that was allowed to walk."""
        was_under_way, self.place = self.place is not None, claimed.walk
        if self.place is not None or was_under_way:
            self._seconds += ended - began
        if self.place is None:
            self._rests_until = ended + REST * self._seconds
            self._seconds = 0.0

    def until_next(self, claimed: Claimed, now: float) -> float | None:
        """Return the seconds until the next claim is due, for the next job or for jobs that only a walk finds."""
        if not claimed.is_hidden:
            return claimed.seconds_until_next
        rest = max(self._rests_until - now, 0.0)
        return rest if claimed.seconds_until_next is None else min(rest, claimed.seconds_until_next)
