"""The service that fires schedules when they are due. It exists only in workers that have seen a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_graphile_worker.worker.service import Service, Trouble

if TYPE_CHECKING:
    from django_graphile_worker.worker.scheduling.rounds import Rounds

# Seconds. A worker looks for due schedules at least so often, whatever it has heard.
LONGEST_WAIT = 60.0


class Scheduler(Service):
    """The service of schedules. Several workers share the work, through the database only."""

    name = "schedules"

    def __init__(
        self,
        *,
        build_rounds: Callable[[], Rounds],
        clock: Callable[[], float] = time.monotonic,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._build_rounds = build_rounds
        self._rounds: Rounds | None = None
        self._clock = clock
        # When the next step begins by itself; None while a step is under way.
        self._due_at: float | None = None

    def expect(self, seconds: float) -> None:
        """Look for due schedules in so many seconds at the latest. Called with each read of what is asked."""
        self.start()
        due_at = self._due_at
        if due_at is None or self._clock() + seconds < due_at:
            self.wake()

    def step(self) -> float:
        """Fire what is due; return the seconds until the next schedule is due."""
        self._due_at = None
        if self._rounds is None:
            self._rounds = self._build_rounds()
        delay = min(self._rounds.run(), LONGEST_WAIT)
        self._due_at = self._clock() + delay
        return delay

    def close(self) -> None:
        if self._rounds is not None:
            self._rounds.close()
