"""Sends results to the database in batches, and reports what happened to each.

``BatchLimiter`` decides how many results one statement takes, ``ReleaseBatcher`` which statement releases them. A
result stays pending until the database has accepted it, or until its claim is known to be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg import errors

from django_graphile_worker.sql.releases import CancelledClaim, HeldQueue
from django_graphile_worker.worker.database.connection import WRONG_SERVER
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Outcome, Recorded, Succeeded
from django_graphile_worker.worker.recording import in_one_statement
from django_graphile_worker.worker.release.pending import (
    PendingReleases,
    RejectedReleases,
    move_queues_to_their_jobs,
)
from django_graphile_worker.worker.release.statements import ReleaseStatements

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.pause_type import Pause
    from django_graphile_worker.sql.limits import KeyClosing

    class ReleaseEvents(Protocol):
        """What the releaser reports to its worker."""

        def released(self, outcomes: Sequence[Outcome]) -> None:
            """Report outcomes that the database has accepted."""

        def settled(self, outcomes: Sequence[Outcome]) -> None:
            """Report outcomes that are no longer pending: each was accepted, or its claim is lost."""

        def claim_lost(self, outcome: Outcome) -> None:
            """Report that the result of a job that had begun could not be stored, because its claim was lost."""

        def retry_scheduled(self, seconds: float) -> None:
            """Report that a failed job falls due again in this many seconds."""

        def queues_freed(self, queue_ids: set[int]) -> None:
            """Report queues that were released and have jobs that can run."""

        def cancelled(self, outcome: Cancelled) -> None:
            """Report that a job has ended because it was cancelled, and that the database has stored it."""

        def queues_released(self, queue_ids: Sequence[int]) -> None:
            """Report all queues that were released."""

        def jobs_returned(self, count: int) -> None:
            """Report that this many jobs were returned: a worker may claim them again."""

        def queues_paused(self, pauses: Sequence[Pause]) -> None:
            """Report queues that were paused, because tasks asked for it."""


# The largest number of results in one statement.
BATCH = 2000
# After a rejection a batch has this many times fewer results: four steps from the largest batch down to a single
# result, and each step may take as long as a statement's deadline.
SHRINKAGE = 8
# The connection broke during a statement, so its effect is unknown; or the server is read-only, and accepts no batch
# of any size.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, *WRONG_SERVER)
# The server reports that the statement had no effect. It may accept a smaller batch.
TOO_MUCH = (errors.QueryCanceled, errors.OutOfMemory, errors.ProgramLimitExceeded)

AnyItem = TypeVar("AnyItem", bound=Outcome | HeldQueue)
AnyOutcome = TypeVar("AnyOutcome", Succeeded, Recorded, Failed, Interrupted, Cancelled, Expired)
Answer = TypeVar("Answer")


class BatchLimiter:
    """The number of results that the database accepts at once, judged by the last statements."""

    def __init__(self, rejected: RejectedReleases, *, report: Callable[[psycopg.Error, float], None]) -> None:
        self._rejected = rejected
        self._report = report
        self.batch_size = BATCH

    def send(
        self,
        pending: PendingReleases,
        items: list[AnyItem],
        batch: list[AnyItem],
        act: Callable[[list[AnyItem]], Answer],
    ) -> Answer | None:
        """Release a batch, which is the start of ``items``; return None if the database rejects it.

        After a rejection the next batch is smaller. A single result that is rejected moves to the rejected results, so
        that no other result waits for it.
        """
        began = monotonic()
        try:
            answer = act(batch)
        except psycopg.Error as error:
            if len(batch) > 1:
                self.batch_size = max(len(batch) // SHRINKAGE, 1)
            if isinstance(error, CONNECTION_TROUBLE) and not isinstance(error, TOO_MUCH):
                # A result of this batch may be the cause of the broken connection: send the other results first.
                items[:] = items[len(batch) :] + batch
                raise
            if len(batch) == 1:
                spent = monotonic() - began
                is_definite = not isinstance(error, TOO_MUCH)
                self._report(error, self._rejected.add(items.pop(0), pending, spent=spent, is_definite=is_definite))
            elif isinstance(error, TOO_MUCH):
                self._report(error, 0.0)
            return None
        self.batch_size = min(self.batch_size * 2, BATCH)
        self._rejected.note_success(pending)
        return answer


class ReleaseBatcher:
    """Ends the claims of pending results with one statement per kind of outcome."""

    def __init__(self, statements: ReleaseStatements, limiter: BatchLimiter, events: ReleaseEvents) -> None:
        self._statements = statements
        self._limiter = limiter
        self._events = events

    def release_jobs(self, pending: PendingReleases) -> None:
        """End the claims of all pending outcomes. The outcomes that stay in ``pending`` must be tried again."""
        self._release(pending, pending.succeeded, self._complete)
        if pending.recorded:
            self._release(pending, pending.recorded, self._statements.complete_recorded, in_one_statement)
        self._release(pending, pending.failed, self._fail)
        self._return_interrupted(pending)
        if pending.cancelled:
            self._release(pending, pending.cancelled, self._statements.end_cancelled)
        if pending.expired:
            self._release(pending, pending.expired, self._statements.expire)

    def release_queues(self, pending: PendingReleases, everything: Iterable[PendingReleases]) -> None:
        """Release the pending queues, except the queues that a job in ``everything`` still needs."""
        if not pending.queues:
            return
        free = move_queues_to_their_jobs(pending, everything)
        waiting = len(pending.queues) - free
        while len(pending.queues) > waiting:
            # A queue stays pending until it is released: a draining worker must not end before.
            batch = pending.queues[: min(self._limiter.batch_size, len(pending.queues) - waiting)]
            runnable = self._limiter.send(pending, pending.queues, batch, self._statements.release_queues)
            if runnable is not None:
                # First: it makes limited jobs ready that wait for these queues.
                self._events.queues_released([queue.id for queue in batch])
                del pending.queues[: len(batch)]
            if runnable:
                self._events.queues_freed(runnable)

    def _complete(self, outcomes: Sequence[Outcome]) -> Collection[int]:
        return self._statements.complete([outcome.claim for outcome in outcomes])

    def _fail(self, outcomes: Sequence[Failed]) -> Collection[int]:
        # First: the release of the queue follows the release of its job, and must find the lock of the pause.
        self._pause_queues([outcome for outcome in outcomes if outcome.queue_pause is not None])
        # Also first: the release frees the place of the job, and no other job of its keys must take it.
        self._close_keys([closing for outcome in outcomes for closing in outcome.closings])
        stored = self._statements.fail(outcomes)
        for delay in stored.values():
            if delay is not None:
                self._events.retry_scheduled(delay)
        return stored

    def _pause_queues(self, outcomes: Sequence[Failed]) -> None:
        if outcomes:
            paused = self._statements.pause_queues(outcomes)
            if paused:
                self._events.queues_paused(paused)

    def _close_keys(self, closings: Sequence[KeyClosing]) -> None:
        if closings:
            self._statements.close_keys(closings)

    def _return_interrupted(self, pending: PendingReleases) -> None:
        before = len(pending.interrupted)
        if before:
            self._release(pending, pending.interrupted, self._statements.return_jobs)
            self._events.jobs_returned(before - len(pending.interrupted))

    def _release(
        self,
        pending: PendingReleases,
        outcomes: list[AnyOutcome],
        act: Callable[[Sequence[AnyOutcome]], Collection[int]],
        fitting: Callable[[Sequence[AnyOutcome]], int] = len,
    ) -> None:
        """Release outcomes and report what happened to them. Outcomes that must be tried again stay in the list.

        ``fitting`` returns how many outcomes of a batch, from the first on, one statement takes.
        """
        busy: list[AnyOutcome] = []
        try:
            while outcomes:
                batch = outcomes[: self._limiter.batch_size]
                batch = batch[: fitting(batch)]
                released = self._limiter.send(pending, outcomes, batch, act)
                if released is not None:
                    busy += self._report(pending, batch, released)
                    del outcomes[: len(batch)]
        finally:
            outcomes += busy

    def _report(self, pending: PendingReleases, batch: list[AnyOutcome], released: Collection[int]) -> list[AnyOutcome]:
        """Report what happened to a batch; return the outcomes whose claims still exist."""
        # Mostly all are released, and their ids need not be compared.
        is_whole = len(released) == len(batch)
        missing = [] if is_whole else [outcome for outcome in batch if outcome.claim.id not in released]
        if not missing:
            self._events.settled(batch)
            self._report_released(batch)
            return []
        still = self._statements.still_claimed([outcome.claim for outcome in missing])
        if not pending.is_in_doubt:
            for outcome in missing:
                if outcome.claim.id not in still and has_begun(outcome):
                    self._events.claim_lost(outcome)
        else:
            self._report_cancelled([outcome for outcome in missing if outcome.claim.id not in still])
        self._events.settled([outcome for outcome in batch if outcome.claim.id not in still])
        self._report_released([outcome for outcome in batch if outcome.claim.id in released])
        return [outcome for outcome in missing if outcome.claim.id in still]

    def _report_released(self, outcomes: Sequence[Outcome]) -> None:
        """Report outcomes that the database has accepted: those of cancelled jobs as cancelled."""
        claims = self._statements.take_cancelled()
        if not claims:
            self._events.released(outcomes)
            return
        ended = [as_cancelled(outcome, claims.get(outcome.claim.id)) for outcome in outcomes]
        self._events.released(ended)
        self._report_cancelled(ended)

    def _report_cancelled(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Cancelled):
                self._events.cancelled(outcome)


def has_begun(outcome: Outcome) -> bool:
    """Return True if a result is lost with the claim: a job that never began has no result."""
    if isinstance(outcome, Expired):
        return False
    return not isinstance(outcome, Interrupted | Cancelled) or outcome.has_begun


def as_cancelled(outcome: Outcome, claim: CancelledClaim | None) -> Outcome:
    """Return the outcome of a run whose claim has ended as cancelled, whatever the run itself came to."""
    if claim is None:
        return outcome
    stop = Stop(kind="cancelled", reason=claim.reason, by=claim.cancelled_by)
    return Cancelled(outcome.claim, outcome.duration, stop, has_begun=has_begun(outcome))
