"""The line of a pool: the claimed jobs that wait for a slot, in order."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.pool.work_units import WorkUnit


class Line:
    """The jobs and work units that wait, and when they were put into the line.

    A job without a queue waits as its claim, without an object around it, because nearly every job is one. So the line
    notes the time once for all that is added at once. All that leaves the line leaves it at its front, so its length
    says which of these groups is in front.
    """

    def __init__(self) -> None:
        # The slots take from its left end, which needs no lock.
        self.waiting: deque[Claim | WorkUnit] = deque()
        # Held by the threads that add and remove: the fetcher, and the heartbeat when the lease is lost.
        self._lock = threading.Lock()
        self._added = 0
        # For each group that was added at once: how many had been added with it, and when.
        self._groups: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def passed(self) -> int:
        """How many have left the line so far."""
        return self._added - len(self.waiting)

    def extend(self, waiting: Sequence[Claim | WorkUnit]) -> None:
        with self._lock:
            self._forget_passed_groups()
            self._added += len(waiting)
            self._groups.append((self._added, time.monotonic()))
            self.waiting.extend(waiting)

    def remove(self, horizon: float) -> list[WorkUnit]:
        """Remove what was added at this time or before, and return it as work units."""
        removed: list[WorkUnit] = []
        with self._lock:
            while self.waiting and (added_at := self._front_added_at()) <= horizon:
                try:
                    unit = self.waiting.popleft()
                except IndexError:
                    break
                removed.append(unit if isinstance(unit, WorkUnit) else WorkUnit([unit], None, added_at))
        return removed

    def _front_added_at(self) -> float:
        self._forget_passed_groups()
        # No group is left if the slots have just emptied the line.
        return self._groups[0][1] if self._groups else math.inf

    def _forget_passed_groups(self) -> None:
        passed = self.passed
        while self._groups and self._groups[0][0] <= passed:
            self._groups.popleft()
