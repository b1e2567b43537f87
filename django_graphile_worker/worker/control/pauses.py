"""What is paused, as this worker knows it: no job of it begins here, and no such job is claimed.

A paused queue is locked in the database, so claims pass over it by themselves. Paused tasks leave the tasks that claims
ask for, and paused flags join the forbidden flags. Jobs that were claimed before are returned when a slot takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.control import ReadPause

if TYPE_CHECKING:
    from typing import Protocol

    class PauseEvents(Protocol):
        """What the pauses report to their worker."""

        def pauses_changed(self) -> None:
            """Use the new pauses for claims, and for jobs that have not begun."""

        def settle_pauses(self, seconds: float) -> None:
            """Settle the pauses in the database after this many seconds."""

        def queue_is_unlocked(self) -> None:
            """Read the pauses again: a job of a paused queue was claimed, so the queue has lost its lock."""


# Seconds between two checks of a queue that a worker of another kind released, or is about to release.
CHECK_INTERVAL = 1.0


class Pauses:
    """The pauses that hold. Read by the threads that claim and run jobs; each set is replaced as a whole."""

    def __init__(self, events: PauseEvents, *, identifier_of: Callable[[int], str | None]) -> None:
        self._events = events
        # Returns the identifier of a task by its id in the database.
        self._identifier_of = identifier_of
        self.queues: frozenset[str] = frozenset()
        self.tasks: frozenset[str] = frozenset()
        self.flags: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.queues or self.tasks or self.flags)

    def update(self, read: Sequence[ReadPause]) -> None:
        """Compare what was read from the database with what is known; report a change, and plan the next end."""
        before = (self.queues, self.tasks, self.flags)
        self.queues, self.tasks, self.flags = (_names(read, kind) for kind in ("queue", "task", "flag"))
        if (self.queues, self.tasks, self.flags) != before:
            self._events.pauses_changed()
        delays = [delay for each in read if (delay := _until_settled(each)) is not None]
        if delays:
            self._events.settle_pauses(max(min(delays), 0.0))

    def holds(self, claim: Claim) -> bool:
        """Return True if the job of this claim may not begin."""
        if claim.queue_name is not None and claim.queue_name in self.queues:
            self._events.queue_is_unlocked()
            return True
        if self.tasks and self._identifier_of(claim.task_id) in self.tasks:
            return True
        if claim.flags_text is None or not self.flags:
            return False
        return not self.flags.isdisjoint(flags_from(claim.flags_text))


def _names(read: Sequence[ReadPause], kind: str) -> frozenset[str]:
    return frozenset(each.name for each in read if each.kind == kind and each.holds)


def _until_settled(pause: ReadPause) -> float | None:
    """Return the seconds until a worker must settle this pause; None if it holds until it is resumed."""
    if pause.is_handed_over:
        return CHECK_INTERVAL
    return 0.0 if pause.is_unlocked else pause.seconds_left
