"""Limits how often the same line is written: a log that repeats one failure thirty times hides the next failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

# Seconds between two lines about the same subject.
INTERVAL = 60.0


class Throttle:
    """A filter that admits each subject once per interval, and counts how often it rejected the subject in between."""

    def __init__(self, *, interval: float = INTERVAL, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        # When each subject was last admitted, and how often it was rejected since.
        self._admitted: dict[Hashable, tuple[float, int]] = {}

    def admit(self, subject: Hashable) -> int | None:
        """Return how often the subject was rejected since it was last admitted, or None to reject it now."""
        now = self._clock()
        with self._lock:
            self._drop_old(now)
            admitted_at, kept_back = self._admitted.get(subject, (None, 0))
            if admitted_at is not None and now - admitted_at < self._interval:
                self._admitted[subject] = (admitted_at, kept_back + 1)
                return None
            self._admitted[subject] = (now, 0)
            return kept_back

    def forget(self, concerns: Callable[[Hashable], bool] = lambda subject: True) -> None:
        """Forget subjects whose cause has ended, so that the next occurrence is admitted at once."""
        with self._lock:
            self._admitted = {subject: entry for subject, entry in self._admitted.items() if not concerns(subject)}

    def _drop_old(self, now: float) -> None:
        horizon = now - 2 * self._interval
        self._admitted = {subject: entry for subject, entry in self._admitted.items() if entry[0] > horizon}
