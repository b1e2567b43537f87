"""Saying a thing once, and then rarely: a log in which one failure is written thirty times hides the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

EVERY = 60.0


class Repetitions:
    """Counts what is not worth another line yet."""

    def __init__(self, *, every: float = EVERY, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        self._lock = threading.Lock()
        # When it was last said, and how often it was kept back since.
        self._said: dict[Hashable, tuple[float, int]] = {}

    def hear(self, subject: Hashable) -> int | None:
        """Is it to be said? None: not now. Else how often it was kept back since it was last said."""
        now = self._clock()
        with self._lock:
            self._drop_the_old(now)
            said_at, kept_back = self._said.get(subject, (None, 0))
            if said_at is not None and now - said_at < self._every:
                self._said[subject] = (said_at, kept_back + 1)
                return None
            self._said[subject] = (now, 0)
            return kept_back

    def forget(self, concerns: Callable[[Hashable], bool] = lambda subject: True) -> None:
        """It is over: when it begins again, that is news."""
        with self._lock:
            self._said = {subject: told for subject, told in self._said.items() if not concerns(subject)}

    def _drop_the_old(self, now: float) -> None:
        horizon = now - 2 * self._every
        self._said = {subject: told for subject, told in self._said.items() if told[0] > horizon}
