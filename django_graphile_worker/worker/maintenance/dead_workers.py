"""Decides which workers are dead.

A worker is dead when, by the database's clock, its last heartbeat is older than its timeout, and this process has
itself seen that heartbeat unchanged for two of the worker's heartbeat intervals, without losing contact with the
database meanwhile. After an outage, or after the database's clock was set, every heartbeat is too old by that clock for
a moment: two intervals are enough for all living workers to beat again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.worker.maintenance.lease_clock import lease_clock

if TYPE_CHECKING:
    from django_graphile_worker.sql.recovery import LateWorker

# For how many of its heartbeat intervals a late worker is watched before it counts as dead.
BEATS_WATCHED = 2


class DeadWorkerDetector:
    """The late workers that this process has seen, kept from one look at the register to the next."""

    def __init__(self, clock: Callable[[], float] = lease_clock, *, longest_gap: float = math.inf) -> None:
        self._clock = clock
        # Seconds. After a longer gap between two looks, all workers are watched anew: a beat in the gap was not seen.
        self._longest_gap = longest_gap
        self._looked_at = -math.inf
        # By worker id: the last beat, and the time since which it has been seen unchanged.
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
        """Seconds from the last look until another worker may be dead; infinity if no other worker is late."""
        return self._until_next

    def reset(self) -> None:
        """Watch all workers anew, because contact with the database was lost."""
        self._watched.clear()

    def _since(self, worker: LateWorker) -> float:
        beaten_at, since = self._watched.get(worker.id, (None, self._looked_at))
        return since if beaten_at == worker.beaten_at else self._looked_at

    def _remaining(self, worker: LateWorker) -> float:
        """Return the seconds until the worker is dead, if it does not beat again."""
        # Minus infinity while there is no contact. Time before the contact began does not count as watched.
        watched = self._looked_at - max(self._watched[worker.id][1], self._in_contact_since)
        if worker.silent_seconds < 0:
            # The beat is in the future: the database's clock was set back, so the age of the beat is unknown.
            return worker.timeout_seconds - watched
        silence = worker.timeout_seconds - worker.silent_seconds
        return max(silence, BEATS_WATCHED * worker.heartbeat_seconds - watched)
