"""The line of a pool: the claimed jobs that wait for a slot, in order, and the work units that slots take from it.

A slot runs a work unit: a single job without a queue, or the jobs of one queue, one after the other.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Interrupted

# By position, as access by name costs twice as much. Ids of queues begin with 1.
_payload_text = itemgetter(Claim._fields.index("payload_text"))
_is_queued = itemgetter(Claim._fields.index("queue_id"))


class WorkUnit:
    """The claimed jobs that a slot runs in order: a single job without a queue, or several jobs of one queue."""

    __slots__ = ("claims", "queue", "submitted_at")

    def __init__(self, claims: list[Claim], queue: HeldQueue | None, submitted_at: float) -> None:
        # In reverse order, the next job last: list.pop() removes it in one step that no other thread can interrupt.
        self.claims = claims
        # The queue to release after the last job.
        self.queue = queue
        self.submitted_at = submitted_at

    @property
    def size(self) -> int:
        """The size of the payloads of the jobs that have not begun, in characters."""
        return size_of(self.claims)

    def remove_waiting(self) -> list[Claim]:
        """Remove and return the jobs that have not begun.

        The last job is removed first, because the slot may take the next job from the other end meanwhile.
        """
        removed = []
        while True:
            try:
                removed.append(self.claims.pop(0))
            except IndexError:
                return removed


def size_of(claims: Iterable[Claim]) -> int:
    """Return the size of the payloads of these jobs, in characters."""
    return sum(map(len, map(_payload_text, claims)))


def line_up(claims: list[Claim]) -> Sequence[Claim | WorkUnit]:
    """Return what waits for a slot: a work unit for the jobs of each queue, and every other job as it is, in order."""
    if not any(map(_is_queued, claims)):
        return claims
    return [unit if unit.queue is not None else unit.claims[0] for unit in to_work_units(claims)]


def to_work_units(claims: Sequence[Claim]) -> Iterable[WorkUnit]:
    """Group the jobs of each queue into one work unit, in order; every other job is a work unit by itself."""
    now = time.monotonic()
    by_queue: dict[int, list[Claim]] = {}
    for claim in reversed(claims):
        if claim.queue_id is not None:
            by_queue.setdefault(claim.queue_id, []).append(claim)
    for claim in claims:
        queue_id = claim.queue_id
        if queue_id is None:
            yield WorkUnit([claim], None, now)
        elif queue_id in by_queue:
            yield WorkUnit(by_queue.pop(queue_id), HeldQueue(queue_id, claim.token), now)


def interrupted(work_units: Iterable[WorkUnit]) -> Iterable[Interrupted]:
    """Remove the jobs from these work units, and return an outcome for each: interrupted before it began."""
    return (Interrupted(claim, 0.0, has_begun=False) for unit in work_units for claim in unit.remove_waiting())


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
