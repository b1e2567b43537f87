"""Sends outcomes to the database in batches, reports what happened to each, and keeps those that must be sent again.

``ReleaseBatcher`` decides how many outcomes one statement takes, and which statement releases them. An outcome stays in
``PendingReleases`` until the database has accepted it, or until its claim is known to be lost. A single outcome that
the database rejects moves to ``RejectedReleases``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg import errors

from django_graphile_worker.sql.limits import KeyClosing
from django_graphile_worker.sql.releases import CancelledClaim, HeldQueue
from django_graphile_worker.worker.database.connection import WRONG_SERVER
from django_graphile_worker.worker.outcomes import (
    Cancelled,
    Expired,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    RunStop,
    Succeeded,
)
from django_graphile_worker.worker.recording import in_one_statement
from django_graphile_worker.worker.release.statements import ReleaseStatements

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# The largest number of outcomes in one statement.
BATCH = 2000
# After a rejection a batch has this many times fewer outcomes: four steps from the largest batch down to a single
# outcome, and each step may take as long as a statement's deadline.
SHRINKAGE = 8
# The connection broke during a statement, so its effect is unknown; or the server is read-only, and accepts no batch
# of any size.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, *WRONG_SERVER)
# The server reports that the statement had no effect. It may accept a smaller batch.
TOO_MUCH = (errors.QueryCanceled, errors.OutOfMemory, errors.ProgramLimitExceeded)
# Seconds until an outcome that the database rejected is sent again.
REJECTED_DELAY = 5.0
# An outcome that is rejected again although others were accepted meanwhile is itself the problem. All such outcomes
# together take at most this share of the releaser's time, but no outcome waits longer than the longest delay: the cause
# of its rejection may have passed.
SHARE_OF_REJECTED = 0.1
LONGEST_DELAY = 30.0
# A worker that stops waits for the rejected outcomes: it sends each this many times more, at this shorter delay, and
# then gives up.
HURRIED_DELAY = 0.5
LAST_TRIES = 3

AnyItem = TypeVar("AnyItem", bound=Outcome | HeldQueue)
AnyOutcome = TypeVar("AnyOutcome", Succeeded, Recorded, Failed, Interrupted, Cancelled, Expired)
Answer = TypeVar("Answer")


class PendingReleases:
    """Results to send to the database, grouped by the statement that releases them."""

    def __init__(self, *, is_in_doubt: bool = False, retry_at: float = -math.inf) -> None:
        self.succeeded: list[Succeeded] = []
        self.recorded: list[Recorded] = []
        self.failed: list[Failed] = []
        self.interrupted: list[Interrupted] = []
        self.cancelled: list[Cancelled] = []
        self.expired: list[Expired] = []
        self.queues: list[HeldQueue] = []
        # Whether the connection broke during an earlier try: that try may have released the rows that are missing now.
        self.is_in_doubt = is_in_doubt
        # A rejected outcome is in a PendingReleases of its own, and is sent again at this time.
        self.retry_at = retry_at
        # How many statements had succeeded when the outcome was rejected; None if that is unknown or not relevant.
        self.successes_before: int | None = None

    def __len__(self) -> int:
        outcomes = len(self.succeeded) + len(self.recorded) + len(self.failed) + len(self.interrupted)
        return outcomes + len(self.cancelled) + len(self.expired) + len(self.queues)

    def put(self, item: Outcome | HeldQueue) -> None:
        if type(item) is Succeeded:
            self.succeeded.append(item)
        elif type(item) is Recorded:
            self.recorded.append(item)
        elif type(item) is Failed:
            self.failed.append(item)
        elif type(item) is Interrupted:
            self.interrupted.append(item)
        elif type(item) is Cancelled:
            self.cancelled.append(item)
        elif type(item) is Expired:
            self.expired.append(item)
        elif isinstance(item, HeldQueue):
            self.queues.append(item)

    def outcomes(self) -> Sequence[Outcome]:
        return [*self.succeeded, *self.recorded, *self.failed, *self.interrupted, *self.cancelled, *self.expired]


class RejectedReleases:
    """Outcomes that the database rejected. Each is sent by itself, so that no other outcome waits for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.all: list[PendingReleases] = []
        self._is_hurried = False
        # How many statements have succeeded so far.
        self._successes = 0
        # By outcome: how often it was rejected since the worker began to stop, without rejections for lack of time.
        self._last_rejections: Counter[tuple[str, int]] = Counter()

    def add(
        self, item: Outcome | HeldQueue, source: PendingReleases, *, spent: float, is_definite: bool = False
    ) -> float:
        """Keep an outcome that was rejected; return the seconds until it is sent again.

        ``source`` is where the outcome came from, ``spent`` the seconds that the rejected statement took. A rejection
        is definite if more time would not have helped.
        """
        delay = self._delay(source, spent=spent, is_definite=is_definite)
        self._last_rejections[_key(item)] += self._is_hurried and is_definite
        pending = PendingReleases(is_in_doubt=source.is_in_doubt, retry_at=self._clock() + delay)
        pending.put(item)
        pending.successes_before = self._successes
        self.all.append(pending)
        return delay

    def note_success(self, pending: PendingReleases) -> None:
        """Note that a statement succeeded. If it released a rejected outcome, the others are sent again at once."""
        self._successes += 1
        if self.all and pending in self.all:
            for each in self.all:
                each.retry_at = min(each.retry_at, self._clock())
                each.successes_before = None

    def due(self) -> list[PendingReleases]:
        now = self._clock()
        return [pending for pending in self.all if pending.retry_at <= now]

    def until_next(self) -> float:
        """Return the seconds until the next outcome is due to be sent again. There must be a rejected outcome."""
        return max(min(pending.retry_at for pending in self.all) - self._clock(), 0.0)

    def remove_released(self) -> None:
        self.all = [pending for pending in self.all if pending]

    def hurry(self) -> None:
        """Send all rejected outcomes again now, and with short delays from now on: a worker that stops waits for them.

        Called from another thread than the thread of the releaser.
        """
        self._is_hurried = True
        for pending in list(self.all):
            pending.retry_at = self._clock()

    @property
    def are_given_up(self) -> bool:
        """Whether the database has rejected each outcome LAST_TRIES times since the worker began to stop."""
        rejected = [pending for pending in list(self.all) if pending]
        return bool(rejected) and all(
            self._last_rejections[_key(item)] >= LAST_TRIES
            for pending in rejected
            # The queue of a job is released with the job.
            for item in pending.outcomes() or pending.queues
        )

    def job_ids(self) -> list[int]:
        return [outcome.claim.id for pending in list(self.all) for outcome in pending.outcomes()]

    def _delay(self, source: PendingReleases, *, spent: float, is_definite: bool) -> float:
        if self._is_hurried:
            return HURRIED_DELAY if is_definite else REJECTED_DELAY
        before = source.successes_before
        if before is None or self._successes == before:
            # No statement succeeded since the last rejection: the problem is the database, not this outcome.
            return REJECTED_DELAY
        return min(max(REJECTED_DELAY, spent * len(self.all) / SHARE_OF_REJECTED), LONGEST_DELAY)

    @property
    def count(self) -> int:
        return sum(map(len, self.all))


class ReleaseBatcher:
    """Ends the claims of pending outcomes with one statement per kind of outcome."""

    def __init__(self, worker: DatabaseWorker, statements: ReleaseStatements, rejected: RejectedReleases) -> None:
        self._worker = worker
        self._statements = statements
        self._rejected = rejected
        # How many outcomes the database accepts at once, judged by the last statements.
        self.batch_size = BATCH

    def release_jobs(self, pending: PendingReleases) -> None:
        """End the claims of all pending outcomes. The outcomes that stay in ``pending`` must be tried again."""
        if pending.succeeded:
            self._release_in_batches(pending, pending.succeeded, self._statements.complete)
        if pending.recorded:
            self._release_in_batches(pending, pending.recorded, self._statements.complete_recorded, in_one_statement)
        if pending.failed:
            self._release_in_batches(pending, pending.failed, self._fail)
        if pending.interrupted:
            before = len(pending.interrupted)
            self._release_in_batches(pending, pending.interrupted, self._statements.return_jobs)
            self._worker.jobs_returned(before - len(pending.interrupted))
        if pending.cancelled:
            self._release_in_batches(pending, pending.cancelled, self._statements.end_cancelled)
        if pending.expired:
            self._release_in_batches(pending, pending.expired, self._statements.expire)

    def release_queues(self, pending: PendingReleases, everything: Iterable[PendingReleases]) -> None:
        """Release the pending queues, except the queues that a job in ``everything`` still needs."""
        free = move_queues_to_their_jobs(pending, everything)
        waiting = len(pending.queues) - free
        while len(pending.queues) > waiting:
            # A queue stays pending until it is released: a draining worker must not end before.
            batch = pending.queues[: min(self.batch_size, len(pending.queues) - waiting)]
            runnable = self._send(pending, pending.queues, batch, self._statements.release_queues)
            if runnable is not None:
                # First: it makes limited jobs ready that wait for these queues.
                self._worker.queues_released([queue.id for queue in batch])
                del pending.queues[: len(batch)]
            if runnable:
                self._worker.queues_freed(runnable)

    def _fail(self, outcomes: Sequence[Failed]) -> Collection[int]:
        # First: the release of the queue follows the release of its job, and must find the lock of the pause.
        self._pause_queues([outcome for outcome in outcomes if outcome.queue_pause is not None])
        # Also first: the release frees the place of the job, and no other job of its keys must take it.
        self._close_keys([closing for outcome in outcomes for closing in outcome.closings])
        stored = self._statements.fail(outcomes)
        for delay in stored.values():
            if delay is not None:
                self._worker.retry_scheduled(delay)
        return stored

    def _pause_queues(self, outcomes: Sequence[Failed]) -> None:
        if outcomes:
            paused = self._statements.pause_queues(outcomes)
            if paused:
                self._worker.queues_paused(paused)

    def _close_keys(self, closings: Sequence[KeyClosing]) -> None:
        if closings:
            self._statements.close_keys(closings)

    def _release_in_batches(
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
                batch = outcomes[: self.batch_size]
                batch = batch[: fitting(batch)]
                released = self._send(pending, outcomes, batch, act)
                if released is not None:
                    busy += self._report(pending, batch, released)
                    del outcomes[: len(batch)]
        finally:
            outcomes += busy

    def _send(
        self,
        pending: PendingReleases,
        items: list[AnyItem],
        batch: list[AnyItem],
        act: Callable[[list[AnyItem]], Answer],
    ) -> Answer | None:
        """Release a batch, which is the start of ``items``; return None if the database rejects it.

        After a rejection the next batch is smaller. A single outcome that is rejected moves to the rejected outcomes,
        so that no other waits for it.
        """
        began = monotonic()
        try:
            answer = act(batch)
        except psycopg.Error as error:
            if len(batch) > 1:
                self.batch_size = max(len(batch) // SHRINKAGE, 1)
            if isinstance(error, CONNECTION_TROUBLE) and not isinstance(error, TOO_MUCH):
                # An outcome of this batch may be the cause of the broken connection: send the other outcomes first.
                items[:] = items[len(batch) :] + batch
                raise
            if len(batch) == 1:
                spent = monotonic() - began
                is_definite = not isinstance(error, TOO_MUCH)
                delay = self._rejected.add(items.pop(0), pending, spent=spent, is_definite=is_definite)
                self._worker.reports.database_trouble("releaser", error, delay)
            elif isinstance(error, TOO_MUCH):
                self._worker.reports.database_trouble("releaser", error, 0.0)
            return None
        self.batch_size = min(self.batch_size * 2, BATCH)
        self._rejected.note_success(pending)
        return answer

    def _report(self, pending: PendingReleases, batch: list[AnyOutcome], released: Collection[int]) -> list[AnyOutcome]:
        """Report what happened to a batch; return the outcomes whose claims still exist."""
        # Mostly all are released, and their ids need not be compared.
        is_whole = len(released) == len(batch)
        missing = [] if is_whole else [outcome for outcome in batch if outcome.claim.id not in released]
        if not missing:
            self._worker.claims_settled(batch)
            self._report_released(batch)
            return []
        still = self._statements.still_claimed([outcome.claim for outcome in missing])
        if not pending.is_in_doubt:
            for outcome in missing:
                if outcome.claim.id not in still and has_begun(outcome):
                    self._worker.claim_lost(outcome)
        else:
            self._report_cancelled([outcome for outcome in missing if outcome.claim.id not in still])
        self._worker.claims_settled([outcome for outcome in batch if outcome.claim.id not in still])
        self._report_released([outcome for outcome in batch if outcome.claim.id in released])
        return [outcome for outcome in missing if outcome.claim.id in still]

    def _report_released(self, outcomes: Sequence[Outcome]) -> None:
        """Report outcomes that the database has accepted: those of cancelled jobs as cancelled."""
        claims = self._statements.cancelled
        if not claims:
            self._worker.jobs_released(outcomes)
            return
        self._statements.cancelled = {}
        ended = [as_cancelled(outcome, claims.get(outcome.claim.id)) for outcome in outcomes]
        self._worker.jobs_released(ended)
        self._report_cancelled(ended)

    def _report_cancelled(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Cancelled):
                self._worker.job_cancelled(outcome)


def move_queues_to_their_jobs(pending: PendingReleases, everything: Iterable[PendingReleases]) -> int:
    """Move each queue to the ``PendingReleases`` of the last of its jobs; return how many queues wait for no job.

    A queue may be released only after all of its jobs. The queues that wait for no job come first in
    ``pending.queues``, and stay there until they are released.
    """
    needed_by = {_queue_of(outcome): each for each in everything for outcome in each.outcomes()}
    for queue in pending.queues:
        if needed_by.get(queue, pending) is not pending:
            needed_by[queue].queues.append(queue)
    staying = [queue for queue in pending.queues if needed_by.get(queue, pending) is pending]
    pending.queues[:] = sorted(staying, key=lambda queue: queue in needed_by)
    return sum(queue not in needed_by for queue in staying)


def _queue_of(outcome: Outcome) -> HeldQueue | None:
    claim = outcome.claim
    return None if claim.queue_id is None else HeldQueue(claim.queue_id, claim.token)


def _key(item: Outcome | HeldQueue) -> tuple[str, int]:
    return ("queue", item.id) if isinstance(item, HeldQueue) else ("job", item.claim.id)


def has_begun(outcome: Outcome) -> bool:
    """Return whether a run is lost with the claim: a job that never began has none."""
    if isinstance(outcome, Expired):
        return False
    return not isinstance(outcome, Interrupted | Cancelled) or outcome.has_begun


def as_cancelled(outcome: Outcome, claim: CancelledClaim | None) -> Outcome:
    """Return the outcome of a run whose claim has ended as cancelled, whatever the run itself came to."""
    if claim is None:
        return outcome
    stop = RunStop(kind="cancelled", reason=claim.reason, by=claim.cancelled_by)
    return Cancelled(outcome.claim, outcome.duration, stop, has_begun=has_begun(outcome))
