"""What happens, as Django signals.

Every signal is sent with ``send_robust``: a receiver that raises harms neither
the job nor the worker. ``sender`` is the class that saw it happen. Receivers
must take ``**kwargs``: arguments may be added, never removed.

Arguments that come up again and again:

``worker_id``
    the worker's id, as in ``locked_by``;
``database``
    the alias of the database that the queue is in;
``job``
    a frozen :class:`~django_graphile_worker.jobs.Job`, as it was claimed;
``duration``
    seconds, as a float;
``error``
    the exception.
"""

from __future__ import annotations

from collections.abc import Callable

from django.dispatch import Signal


class Event(Signal):
    """A signal that knows the names of its arguments."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self.arguments = arguments
        self._sometimes_deaf: tuple[str, Callable[..., bool]] | None = None

    def is_heard(self, **arguments: object) -> bool:
        """Tell whether sending these is worth its cost: nobody listens, or only one who would do nothing now."""
        receivers = self.receivers
        if len(receivers) == 1 and self._sometimes_deaf is not None:
            dispatch_uid, is_listening = self._sometimes_deaf
            if receivers[0][0][0] == dispatch_uid:
                return is_listening(**arguments)
        return bool(receivers)

    def heed_only_when(self, dispatch_uid: str, is_listening: Callable[..., bool]) -> None:
        """Say that the receiver with this ``dispatch_uid`` does nothing unless ``is_listening()``.

        It is asked with those arguments that ``is_heard`` was given.
        """
        self._sometimes_deaf = (dispatch_uid, is_listening)


# The worker's life.
worker_started = Event("worker_id", "database", "concurrency", "tasks")
worker_stopping = Event("worker_id", "database", "reason")
worker_stopped = Event("worker_id", "database", "reason", "duration")
# The sweeper, or a pause longer than WORKER_TIMEOUT, took the worker's claims away.
worker_lost_lease = Event("worker_id", "database", "new_worker_id")

# A newer graphile-worker has changed the schema in a way that this version does not know: the worker stops.
schema_refused = Event("worker_id", "database", "error")

# LISTEN, which makes a worker quick; without it the worker polls.
listening_started = Event("worker_id", "database")
listening_lost = Event("worker_id", "database", "error", "retry_in")

# A job's life. job_succeeded to job_interrupted say how the run ended;
# job_released says that the database knows it too.
jobs_claimed = Event("worker_id", "database", "jobs", "duration")
job_started = Event("worker_id", "database", "job")
# log_success: does the worker that ran it want a line in the log?
job_succeeded = Event("worker_id", "database", "job", "duration", "log_success")
job_failed = Event("worker_id", "database", "job", "duration", "error", "retry_in")
job_permanently_failed = Event("worker_id", "database", "job", "duration", "error")
job_interrupted = Event("worker_id", "database", "job", "duration", "reason")
# The task succeeded, and left a changed session (SET, a lock, a temporary table): its connection was closed.
leftover_state_found = Event("worker_id", "database", "job", "leftovers")
job_released = Event("worker_id", "database", "job", "outcome")
# The job was no longer ours when its result was to be written.
claim_lost = Event("worker_id", "database", "job", "outcome")

# The worker stops, and the database refuses to take the results of these jobs: they will run again.
results_refused = Event("worker_id", "database", "job_ids")

# Cleaning up after workers that died.
jobs_recovered = Event("worker_id", "database", "job_ids", "dead_worker_ids")
stale_locks_released = Event("worker_id", "database", "jobs", "queues")

# Recurring tasks.
cron_started = Event("worker_id", "database", "items")
cron_scheduled = Event("worker_id", "database", "identifiers", "tick")
cron_backfilled = Event("worker_id", "database", "identifier", "ticks")

# The database did not do what it was asked; the worker tries again after retry_in.
database_trouble = Event("worker_id", "database", "action", "error", "retry_in")
# Every part of the worker gets its answers again; duration is how long that was not so.
database_answered = Event("worker_id", "database", "duration")
# The worker schema has not all its indexes, so jobs are found slowly: told once by each worker.
indexes_missed = Event("worker_id", "database", "missing", "incomplete")
# Jobs wait for tasks that no live worker has: each name is told once by each worker.
tasks_unserved = Event("worker_id", "database", "identifiers")
