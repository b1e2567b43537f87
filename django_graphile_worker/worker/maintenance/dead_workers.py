"""Decides which workers are dead.

A worker is dead when it has been silent for longer than it promised, by the database's clock, and this process has
itself seen its last heartbeat unchanged for two of its heartbeat intervals, without losing contact to the database
meanwhile. After an outage, or after the database's clock was set, every worker is silent by that clock for a moment:
two intervals are enough for all living workers to beat again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.worker.maintenance.lease_clock import lease_clock

if TYPE_CHECKING:
    from django_graphile_worker.sql.recovery import LateWorker

# For how many of its heartbeat intervals a late worker is watched before it is called dead.
BEATS_WATCHED = 2


class DeadWorkerDetector:
    """The late workers as this process has seen them, from one look at the register to the next."""

    def __init__(self, clock: Callable[[], float] = lease_clock, *, longest_gap: float = math.inf) -> None:
        self._clock = clock
        # A look that comes later than this after the previous look did not see what was between them.
        self._longest_gap = longest_gap
        self._looked_at = -math.inf
        # By worker id: the last beat, and since when it has been seen unchanged.
        self._watched: dict[str, tuple[float, float]] = {}
        self._in_contact_since = -math.inf
        self._until_next = math.inf

    def find_dead(self, late: Sequence[LateWorker], *, in_contact_since: float = -math.inf) -> list[LateWorker]:
        """Return the late workers that are dead."""
        now = self._clock()
        if now - self._looked_at > self._longest_gap:
            self.reset()
        self._looked_at = now
        self._in_contact_since = in_contact_since
        self._watched = {worker.id: (worker.beaten_at, self._since(worker)) for worker in late}
        remaining = {worker.id: self._remaining(worker) for worker in late}
        self._until_next = min((seconds for seconds in remaining.values() if seconds > 0), default=math.inf)
        return [worker for worker in late if remaining[worker.id] <= 0]

    @property
    def until_next(self) -> float:
        """Seconds from the last look until another worker may be found dead; infinity when none is late."""
        return self._until_next

    def reset(self) -> None:
        """Watch all workers anew, as contact to the database was lost."""
        self._watched.clear()

    def _since(self, worker: LateWorker) -> float:
        beaten_at, since = self._watched.get(worker.id, (None, self._looked_at))
        return since if beaten_at == worker.beaten_at else self._looked_at

    def _remaining(self, worker: LateWorker) -> float:
        """Return the seconds until the worker is dead, if it does not beat again."""
        # Infinite while there is no contact. What was seen before counts again from the moment of contact on.
        watched = self._looked_at - max(self._watched[worker.id][1], self._in_contact_since)
        if worker.silent_seconds < 0:
            # Its beat lies in the future: the database's clock was set back, and says nothing about the beat's age.
            return worker.timeout_seconds - watched
        silence = worker.timeout_seconds - worker.silent_seconds
        return max(silence, BEATS_WATCHED * worker.heartbeat_seconds - watched)
