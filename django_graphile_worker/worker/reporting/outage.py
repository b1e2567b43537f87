"""From the first part of a worker that gets no answer from the database to the last that gets one again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

import psycopg

LOOK_INTERVAL = 0.25


class Outage:
    """Begins with a part's trouble; ``look()`` notices when no part has any."""

    def __init__(
        self,
        troubles: Callable[[], Iterable[BaseException | None]],
        on_over: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._troubles = troubles
        self._on_over = on_over
        self._clock = clock
        self._since: float | None = None
        # The parts come back one after the other, each after its own back-off: the first that does tells the time.
        self._answered_at: float | None = None
        self._cut_off = 0

    def begin(self, error: BaseException) -> None:
        """A part is in trouble; what no database said is none of ours."""
        if self._since is None and isinstance(error, psycopg.Error):
            self._answered_at, self._cut_off = None, 0
            self._since = self._clock()

    def look(self) -> float:
        """Tell if it is over; the seconds until the next look."""
        since = self._since
        if since is None:
            return math.inf
        cut_off = sum(isinstance(trouble, psycopg.Error) for trouble in self._troubles())
        if cut_off > self._cut_off:
            self._answered_at = None
        elif cut_off < self._cut_off and self._answered_at is None:
            self._answered_at = self._clock()
        self._cut_off = cut_off
        if cut_off:
            return LOOK_INTERVAL
        self._since = None
        self._on_over((self._answered_at or self._clock()) - since)
        return math.inf
