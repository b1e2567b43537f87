"""Work units: the claimed jobs that a slot runs one after the other."""

from __future__ import annotations

import time
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
