"""Reports what happens in a worker: to the site with signals, to people with events, and to Django's tasks framework.

``WorkerReports`` builds the signals, also of an outage of the database, and writes events; ``SignalSender`` sends the
signals from a thread of its own; and ``TaskReports`` reports to the framework how its tasks ended.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from django.dispatch import Signal

from django_graphile_worker import signals
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.control import CancelledJob, Pause
from django_graphile_worker.sql.events import NewEvent, add
from django_graphile_worker.sql.recovery import Exhausted, Recovered, Unlocked
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Outcome
from django_graphile_worker.worker.service import Service

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds between two checks whether an outage is over.
OUTAGE_CHECK_INTERVAL = 0.25
# An outage of this many seconds is an event that operators see later.
LONG_OUTAGE = 10.0
# How many events wait until they are written, and how many names an event has.
MAX_NOTED = 20
MAX_NAMES = 20


class Outage:
    """The time in which the database does not answer, from the first failure of a part.

    It is over when every part gets answers again; its duration ends with the first part that does.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        # The parts connect again one after the other, each after its own back-off: the first marks the end.
        self._answered_at: float | None = None
        self._cut_off = 0

    def begin(self, error: BaseException) -> None:
        """Note that a part failed; an error that does not come from the database is no outage."""
        if self._since is None and isinstance(error, psycopg.Error):
            self._answered_at, self._cut_off = None, 0
            self._since = self._clock()

    @property
    def is_under_way(self) -> bool:
        return self._since is not None

    def end(self, troubles: Iterable[BaseException | None]) -> float | None:
        """End the outage if it is over, and return its duration; return None if it is not.

        ``troubles`` are the errors of each part's last step, None for a step that succeeded.
        """
        since = self._since
        if since is None:
            return None
        cut_off = sum(isinstance(trouble, psycopg.Error) for trouble in troubles)
        if cut_off > self._cut_off:
            self._answered_at = None
        elif cut_off < self._cut_off and self._answered_at is None:
            self._answered_at = self._clock()
        self._cut_off = cut_off
        if cut_off:
            return None
        self._since = None
        return (self._answered_at or self._clock()) - since


class WorkerReports:
    """The signals of one worker, each with the worker's id, its database and its installation, and its events."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._signal_sender = worker.signal_sender
        self._outage = Outage()
        self._about = {"database": worker.place.using, "installation": worker.place.installation}
        self._job_of = worker.job_of
        # The fields of events that no other statement of the worker writes. The recovery writes them.
        self._noted: deque[dict[str, Any]] = deque(maxlen=MAX_NOTED)

    def send(self, signal: signals.NamedSignal, **arguments: Any) -> None:
        about = {"worker_id": self._worker.worker_id, **self._about}
        self._signal_sender.send(signal, **{**about, **arguments})

    def database_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        self._outage.begin(error)
        self.send(signals.database_trouble, action=action, error=error, retry_in=retry_in)

    def other_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        """Report an error unless it comes from the database: the parts that run jobs report the same."""
        if not isinstance(error, psycopg.Error):
            self.database_trouble(action, error, retry_in)

    def check_outage(self) -> float:
        """Report an outage that is over; return the seconds until the next check."""
        if not self._outage.is_under_way:
            return math.inf
        duration = self._outage.end(self._worker.troubles())
        if duration is None:
            return OUTAGE_CHECK_INTERVAL
        self._database_answered(duration)
        return math.inf

    def _database_answered(self, duration: float) -> None:
        if duration >= LONG_OUTAGE:
            self._note("database_lost", {"seconds": round(duration)})
        self.send(signals.database_answered, duration=duration)

    def note_start(self, former_id: str | None) -> None:
        """Note that the worker has registered, under another id if it has lost its lease.

        The statement that registers does not write the event: the first job would wait for it, for 5 ms.
        """
        worker = self._worker
        about = {**worker.about_process(), "concurrency": worker.settings.concurrency}
        about_event = {"subject": about["host"], "worker_id": worker.worker_id}
        kind = "worker_started" if former_id is None else "worker_returned"
        self._noted.append({**about_event, "kind": kind, "severity": 1, "details": {**about, "former_id": former_id}})
        replaced = worker.replaced_process
        if former_id is None and replaced is not None:
            self._noted.append({**about_event, "kind": "process_replaced", "details": {**replaced, **about}})

    def _note(self, kind: str, details: dict[str, Any]) -> None:
        # Other workers note the same event: they are merged.
        self._noted.append({"kind": kind, "subject": "", "details": details, "merges": True})

    def write_noted(self, database: Database) -> None:
        """Write the events that were noted; those that the database does not take now are written later."""
        while self._noted and self.write(database, NewEvent(**self._noted[0])):
            self._noted.popleft()

    def write(self, database: Database, event: NewEvent) -> bool:
        """Write an event; return False if the database fails, because an error must not end what the worker does."""
        try:
            with database.cursor() as cursor:
                add(cursor, event, schema=database.schema)
            return True
        except psycopg.Error:
            return False

    def listening_starting(self) -> None:
        if signals.listening_starting.receivers:
            self.send(signals.listening_starting)

    def listening_started(self) -> None:
        self.send(signals.listening_started)

    def listening_lost(self, error: Exception, retry_in: float) -> None:
        self.send(signals.listening_lost, error=error, retry_in=retry_in)

    def claim_started(self) -> None:
        if signals.claim_started.receivers:
            self.send(signals.claim_started)

    def nothing_claimed(self, duration: float) -> None:
        if signals.nothing_claimed.receivers:
            self.send(signals.nothing_claimed, duration=duration)

    def jobs_claimed(self, claims: Sequence[Claim], duration: float) -> None:
        if self._worker.metrics is not None:
            self._worker.metrics.claimed(claims)
        if signals.jobs_claimed.receivers:
            jobs = [self._job_of(claim) for claim in claims]
            self.send(signals.jobs_claimed, jobs=jobs, duration=duration)

    def jobs_released(self, outcomes: Sequence[Outcome]) -> None:
        if signals.job_released.receivers:
            for outcome in outcomes:
                job = self._job_of(outcome.claim)
                self.send(signals.job_released, job=job, outcome=type(outcome).__name__)

    def claim_lost(self, outcome: Outcome) -> None:
        job = self._job_of(outcome.claim)
        self.send(signals.claim_lost, job=job, outcome=type(outcome).__name__)

    def job_cancelled(self, outcome: Cancelled) -> None:
        """Report that a claim of this worker has ended because its job was cancelled."""
        job, duration = self._job_of(outcome.claim), outcome.duration if outcome.has_begun else None
        why = {"reason": outcome.stop.reason, "cancelled_by": outcome.stop.by}
        self.send(signals.job_cancelled, job=job, duration=duration, **why)

    def cancelled_jobs_recovered(self, jobs: Iterable[CancelledJob]) -> None:
        """Report that claims of other workers have ended, whose jobs were cancelled."""
        for each in jobs:
            why = {"reason": each.reason, "cancelled_by": each.cancelled_by}
            self.send(signals.job_cancelled, job=each.job, duration=each.duration, **why)

    def cancellation_missed(self, job_id: int, *, reason: str, cancelled_by: str) -> None:
        self.send(signals.cancellation_missed, job_id=job_id, reason=reason, cancelled_by=cancelled_by)

    def jobs_recovered(self, recovered: Recovered) -> None:
        self.send(signals.jobs_recovered, job_ids=recovered.job_ids, dead_worker_ids=recovered.dead_worker_ids)
        self._permanently_failed(recovered.exhausted)

    def stale_locks_released(self, unlocked: Unlocked) -> None:
        self.send(signals.stale_locks_released, jobs=unlocked.jobs, queues=unlocked.queues)
        self._permanently_failed(unlocked.exhausted)

    def indexes_missed(self, missing: Sequence[str], incomplete: Sequence[str]) -> None:
        self._note("indexes_missed", {"missing": list(missing), "incomplete": list(incomplete)})
        self.send(signals.indexes_missed, missing=tuple(missing), incomplete=tuple(incomplete))

    def tasks_unserved(self, identifiers: Sequence[str]) -> None:
        self._note("tasks_unserved", {"tasks": list(identifiers)[:MAX_NAMES]})
        self.send(signals.tasks_unserved, identifiers=tuple(identifiers))

    def work_paused(self, pauses: Iterable[Pause]) -> None:
        for pause in pauses:
            self.send(signals.work_paused, **_about_pause(pause), by=pause.by)

    def work_resumed(self, pauses: Iterable[Pause]) -> None:
        """Report pauses whose time is over."""
        for pause in pauses:
            self.send(signals.work_resumed, **_about_pause(pause), by="")

    def _permanently_failed(self, exhausted: Iterable[Exhausted]) -> None:
        # These jobs ended with their worker, so no executor sends the signal.
        for each in exhausted:
            why = {"error": each.error, "given_up_by": ""}
            self.send(signals.job_permanently_failed, job=each.job, duration=each.seconds, **why)


def _about_pause(pause: Pause) -> dict[str, Any]:
    return {"kind": pause.kind.value, "name": pause.name, "until": pause.until, "reason": pause.reason}


class SignalSender(Service):
    """The service that sends queued signals, in order.

    Receivers are code of the site. The parts that keep the lease and release jobs must never wait for that code, so
    they only queue their signals here.
    """

    name = "signal-sender"

    def __init__(self, worker: DatabaseWorker, sender: type[Any]) -> None:
        super().__init__(on_trouble=self._log_trouble)
        self._worker = worker
        self._sender = sender
        self._queued: deque[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()

    def send(self, signal: Signal, **arguments: Any) -> None:
        """Queue a signal; drop a signal without receivers."""
        if signal.receivers:
            self.call(signal.send_robust, self._sender, **arguments)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Queue a call of code of the site."""
        self._queued.append((function, args, kwargs))
        self.wake()

    @property
    def has_queued(self) -> bool:
        """Whether a signal or a call waits for the next step."""
        return bool(self._queued)

    def step(self) -> float:
        # First, as it may queue a signal.
        delay = self._worker.reports.check_outage()
        if self._queued:
            self._send_queued()
        return delay

    def close(self) -> None:
        try:
            self.step()
        finally:
            django_connections.thread_finished()

    def _log_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        # A signal about it would come back here.
        logger.error("%s failed, next try in %.1f s", action, retry_in, exc_info=error)

    def _send_queued(self) -> None:
        """Send all queued signals.

        Receivers may use Django's connections: a connection that broke or expired since the last signal is closed.
        """
        if threading.current_thread() is self._thread:
            # Only on the service's own thread: another thread that calls step() manages its own connections.
            django_connections.watch_thread()
            django_connections.begin()
        try:
            while self._queued:
                function, args, kwargs = self._queued.popleft()
                function(*args, **kwargs)
        finally:
            django_connections.end()


class TaskReports:
    """The reports of one worker to Django's tasks framework, once the database has stored how its tasks ended."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker

    def released(self, outcomes: Iterable[Outcome]) -> None:
        """Report the outcomes that end their jobs, and forget the others: another attempt follows."""
        task_of = self._worker.directory.task_of
        for outcome in outcomes:
            task = task_of(outcome.claim.task_id)
            if task is None or task.signals is None:
                continue
            claim, has_succeeded = outcome.claim, not isinstance(outcome, Failed | Interrupted | Cancelled | Expired)
            if _has_ended(outcome) and task.signals.is_end_heard(succeeded=has_succeeded):
                self._call(task.signals.finish, claim.id, claim.attempts, claim.payload_text, succeeded=has_succeeded)
            else:
                task.signals.forget(claim.id, claim.attempts)

    def claim_lost(self, outcome: Outcome) -> None:
        """Forget a run whose claim was lost: another worker runs the job, or has run it."""
        task = self._worker.directory.task_of(outcome.claim.task_id)
        if task is not None and task.signals is not None:
            task.signals.forget(outcome.claim.id, outcome.claim.attempts)

    def ended(self, jobs: Iterable[Job]) -> None:
        """Report jobs that failed for good with their dead workers, or that were cancelled while these held them."""
        for job in jobs:
            task = self._worker.directory.tasks.get(job.task_identifier)
            if task is not None and task.signals is not None:
                self._call(task.signals.finish, job.id, job.attempts, json.dumps(job.payload), succeeded=False)

    def _call(self, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call a function on a thread on which code of the site may run."""
        self._worker.signal_sender.call(function, *args, **kwargs)


def _has_ended(outcome: Outcome) -> bool:
    """Return True if no other attempt follows."""
    if isinstance(outcome, Failed):
        return outcome.retry_in is None
    return not isinstance(outcome, Interrupted)
