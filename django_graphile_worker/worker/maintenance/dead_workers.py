"""Says which workers are dead.

A worker is dead when it has been silent for longer than it promised, by the database's clock, and this process has
itself watched its last beat stay the same for two of its heartbeat intervals, without losing contact to the database
meanwhile. After an outage, or after the database's clock was set, every worker is silent by that clock for a moment:
two intervals are enough for all that live to beat again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.worker.maintenance.lease_clock import lease_clock

if TYPE_CHECKING:
    from django_graphile_worker.sql.recovery import LateWorker

BEATS_WATCHED = 2


class Judge:
    """Watches late workers from look to look."""

    def __init__(self, clock: Callable[[], float] = lease_clock, *, longest_gap: float = math.inf) -> None:
        self._clock = clock
        # A look that comes later than this after the last one sees nothing of what was between them.
        self._longest_gap = longest_gap
        self._looked_at = -math.inf
        # By worker id: the last beat, and since when it has been seen unchanged.
        self._watched: dict[str, tuple[float, float]] = {}
        self._in_contact_since = -math.inf
        self._until_next = math.inf

    def look(self, late: Sequence[LateWorker], *, in_contact_since: float = -math.inf) -> list[LateWorker]:
        """Return those of the late workers that are dead."""
        now = self._clock()
        if now - self._looked_at > self._longest_gap:
            self.forget()
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

    def forget(self) -> None:
        """Contact was lost: watch everybody anew."""
        self._watched.clear()

    def _since(self, worker: LateWorker) -> float:
        beaten_at, since = self._watched.get(worker.id, (None, self._looked_at))
        return since if beaten_at == worker.beaten_at else self._looked_at

    def _remaining(self, worker: LateWorker) -> float:
        """Seconds until it is dead, if it does not beat again."""
        # Without contact it is infinitely long until then; what was seen before counts again from the contact on.
        watched = self._looked_at - max(self._watched[worker.id][1], self._in_contact_since)
        if worker.silent_seconds < 0:
            # Its beat lies in the future, so the database's clock was set back and says nothing of its age.
            return worker.timeout_seconds - watched
        silence = worker.timeout_seconds - worker.silent_seconds
        return max(silence, BEATS_WATCHED * worker.heartbeat_seconds - watched)
