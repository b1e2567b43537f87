"""What is paused, as this worker knows it: no job of it begins here, and no such job is claimed.

A paused queue is locked in the database, so claims pass over it by themselves. Paused tasks leave the tasks that claims
ask for, and paused flags join the forbidden flags. Jobs that were claimed before are returned when a slot takes them.
``PauseEndings`` ends pauses at their time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql import control
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.control import ReadPause
from django_graphile_worker.worker.service import Service

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds between two checks of a queue that a worker of another kind released, or is about to release.
CHECK_INTERVAL = 1.0


class Pauses:
    """The pauses that hold. Read by the threads that claim and run jobs; each set is replaced as a whole."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self.queues: frozenset[str] = frozenset()
        self.tasks: frozenset[str] = frozenset()
        self.flags: frozenset[str] = frozenset()
        # Whether anything is paused. It is read for every job.
        self.hold_any = False

    def update(self, read: Sequence[ReadPause]) -> None:
        """Compare what was read from the database with what is known; report a change, and plan the next end."""
        before = (self.queues, self.tasks, self.flags)
        self.queues, self.tasks, self.flags = (_names(read, kind) for kind in ("queue", "task", "flag"))
        if (self.queues, self.tasks, self.flags) != before:
            self.hold_any = bool(self.queues or self.tasks or self.flags)
            self._worker.pauses_changed()
        delays = [delay for each in read if (delay := _until_settled(each)) is not None]
        if delays:
            self._worker.pause_endings.expect(max(min(delays), 0.0))

    def holds(self, claim: Claim) -> bool:
        """Return True if the job of this claim may not begin."""
        if claim.queue_name is not None and claim.queue_name in self.queues:
            # A job of a paused queue was claimed, so the queue has lost its lock.
            self._worker.heartbeat.read_control_soon()
            return True
        if self.tasks and self._worker.directory.identifier_of(claim.task_id) in self.tasks:
            return True
        if claim.flags_text is None or not self.flags:
            return False
        return not self.flags.isdisjoint(flags_from(claim.flags_text))


class PauseEndings(Service):
    """The service that settles pauses in the database when the time of one of them is over.

    Every worker does it, and the database lets one of them end each pause. The thread starts, and the connection opens,
    with the first pause that has an end.
    """

    name = "pauses"

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._database = worker.database("pauses")
        self._clock = clock
        self._due_at = math.inf

    def expect(self, seconds: float) -> None:
        """Settle the pauses after this many seconds, and not at the time that was planned before."""
        self._due_at = self._clock() + seconds
        self.start()
        self.wake()

    def step(self) -> float:
        remaining = self._due_at - self._clock()
        if remaining > 0:
            return remaining
        with self._database.cursor() as cursor:
            ended = control.settle_pauses(cursor, schema=self._database.schema, now=self._worker.now())
        self._due_at = math.inf
        if ended:
            self._worker.reports.work_resumed(ended)
        self._worker.heartbeat.read_control_soon()
        return math.inf

    def close(self) -> None:
        self._database.close()


def _names(read: Sequence[ReadPause], kind: str) -> frozenset[str]:
    return frozenset(each.name for each in read if each.kind == kind and each.holds)


def _until_settled(pause: ReadPause) -> float | None:
    """Return the seconds until a worker must settle this pause; None if it holds until it is resumed."""
    if pause.is_handed_over:
        return CHECK_INTERVAL
    return 0.0 if pause.is_unlocked else pause.seconds_left
