"""The Django signals that workers send, and ``pre_add_jobs``, which processes send that add jobs.

Every signal of a worker is sent with ``send_robust``: a receiver that raises harms neither
the job nor the worker. ``sender`` is the class that sends the signal. Receivers
must take ``**kwargs``: arguments may be added, never removed.

Common arguments:

``worker_id``
    the worker's id, as in ``locked_by``;
``database``
    the alias of the database that the queue is in;
``installation``
    the alias of the installation, which every signal has in addition;
``job``
    a frozen :class:`~django_graphile_worker.jobs.Job`, as it was claimed;
``duration``
    seconds, as a float;
``error``
    the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from django.dispatch import Signal

from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.jobs import JobSpec


class FiringSchedule(NamedTuple):
    """The schedule, or the item of the crontab, whose jobs a worker adds."""

    name: str
    # Either is given, except for a single time, and for an item whose times a function chooses.
    cron: str | None
    interval: timedelta | None
    time_zone: str


class NamedSignal(Signal):
    """A signal with the names of its arguments."""

    def __init__(self, *arguments: str) -> None:
        # Without the cache, Django takes a lock whenever a signal is sent: the threads of a worker would wait for it.
        super().__init__(use_caching=True)
        self.arguments = arguments
        self._conditional_receiver: tuple[str, Callable[..., bool]] | None = None

    def is_heard(self, **arguments: object) -> bool:
        """Return whether any receiver would act on the signal; if not, the sender need not build its arguments."""
        receivers = self.receivers
        if len(receivers) == 1 and self._conditional_receiver is not None:
            dispatch_uid, is_active = self._conditional_receiver
            if receivers[0][0][0] == dispatch_uid:
                return is_active(**arguments)
        return bool(receivers)

    @property
    def has_only_conditional_receiver(self) -> bool:
        """Whether the receiver that ``mute_unless()`` declared is connected, and no other receiver is."""
        receivers = self.receivers
        conditional = self._conditional_receiver
        return len(receivers) == 1 and conditional is not None and receivers[0][0][0] == conditional[0]

    def mute_unless(self, dispatch_uid: str, is_active: Callable[..., bool]) -> None:
        """Declare that the receiver with this ``dispatch_uid`` does nothing unless ``is_active()``.

        ``is_heard()`` passes its arguments on to ``is_active()``.
        """
        self._conditional_receiver = (dispatch_uid, is_active)


# Sent before jobs are added, with a list of JobSpec, by ``received_specs()``. A receiver may replace entries of the
# list; if it raises, nothing is added. Workers send it for the jobs of schedules and of the crontab; then schedule is a
# FiringSchedule, otherwise None.
pre_add_jobs = NamedSignal("database", "specs", "schedule")


def received_specs(
    specs: list[JobSpec], *, database: str, installation: str, schedule: FiringSchedule | None = None
) -> list[JobSpec]:
    """Return the specs as the receivers of ``pre_add_jobs`` leave them; raise what a receiver raises."""
    if not pre_add_jobs.is_heard():
        return specs
    received = list(specs)
    about = {"database": database, "installation": installation, "schedule": schedule}
    pre_add_jobs.send(sender=JobSpec, specs=received, **about)
    if len(received) != len(specs):
        raise InvalidTypeError(
            f"pre_add_jobs: a receiver left {len(received)} of {len(specs)} specs. It may replace specs, not add or "
            "remove them; raise an exception to refuse them."
        )
    return received


# The life of a worker.
worker_started = NamedSignal("worker_id", "database", "concurrency", "tasks")
worker_stopping = NamedSignal("worker_id", "database", "reason")
worker_stopped = NamedSignal("worker_id", "database", "reason", "duration")
# The worker could not stop in order: jobs that it ran stay locked until its lease expires, and run again then.
shutdown_failed = NamedSignal("worker_id", "database", "reason", "error")
# The worker sent no heartbeat for longer than WORKER_TIMEOUT, and another worker recovered its jobs.
worker_lost_lease = NamedSignal("worker_id", "database", "new_worker_id")

# A newer graphile-worker has changed the schema in a way that this version does not know: the worker stops.
schema_refused = NamedSignal("worker_id", "database", "error")

# While the worker listens, a notification wakes it for each new job; otherwise it polls.
listening_starting = NamedSignal("worker_id", "database")
listening_started = NamedSignal("worker_id", "database")
listening_lost = NamedSignal("worker_id", "database", "error", "retry_in")

# The life of a job. job_succeeded, job_failed, job_permanently_failed and job_interrupted are sent when a run ends;
# job_released is sent when the database has stored its outcome.
# For each statement that claims, claim_started is sent first; then jobs_claimed, nothing_claimed or database_trouble.
claim_started = NamedSignal("worker_id", "database")
nothing_claimed = NamedSignal("worker_id", "database", "duration")
jobs_claimed = NamedSignal("worker_id", "database", "jobs", "duration")
job_started = NamedSignal("worker_id", "database", "job")
# log_success: the setting LOG_SUCCESS of the worker that ran the job.
job_succeeded = NamedSignal("worker_id", "database", "job", "duration", "log_success")
job_failed = NamedSignal("worker_id", "database", "job", "duration", "error", "retry_in")
# given_up_by: the option because of which the job was not tried again, give_up_on for example; often empty.
job_permanently_failed = NamedSignal("worker_id", "database", "job", "duration", "error", "given_up_by")
job_interrupted = NamedSignal("worker_id", "database", "job", "duration", "reason")
# The job was not started by the time at which it expired. It is deleted, and never runs.
job_expired = NamedSignal("worker_id", "database", "job", "expires_at")
# The job was cancelled. Sent once for each job: at the commit of the transaction that removed it, with an empty
# worker_id and no duration; or by the worker that stopped it, or recovered it, when the database has stored that.
job_cancelled = NamedSignal("worker_id", "database", "job", "duration", "reason", "cancelled_by")
# The job was cancelled while it ran, but ended by itself before the worker could stop it.
cancellation_missed = NamedSignal("worker_id", "database", "job_id", "reason", "cancelled_by")
# The task succeeded, but left its session changed (SET, a lock, a temporary table): its connection was closed.
leftover_state_found = NamedSignal("worker_id", "database", "job", "leftovers")
# A run was asked to stop and did not: it ended without its thread, which may run on until its process ends.
thread_left_behind = NamedSignal("worker_id", "database", "job", "duration")
job_released = NamedSignal("worker_id", "database", "job", "outcome")
# The worker's claim on the job had ended before its result was written, so the result is not written.
claim_lost = NamedSignal("worker_id", "database", "job", "outcome")

# The worker stops, and the database refuses to store the results of these jobs: they run again.
results_refused = NamedSignal("worker_id", "database", "job_ids")

# Recovery of the jobs of dead workers.
jobs_recovered = NamedSignal("worker_id", "database", "job_ids", "dead_worker_ids")
stale_locks_released = NamedSignal("worker_id", "database", "jobs", "queues")

# Pauses. The process that pauses or resumes sends them when its transaction has committed; worker_id is empty then. The
# worker that finds the end of a pause, or whose task paused its queue, sends them with its id.
work_paused = NamedSignal("worker_id", "database", "kind", "name", "until", "reason", "by")
work_resumed = NamedSignal("worker_id", "database", "kind", "name", "until", "reason", "by")

# Recurring tasks.
cron_started = NamedSignal("worker_id", "database", "items")
cron_scheduled = NamedSignal("worker_id", "database", "identifiers", "tick")
cron_backfilled = NamedSignal("worker_id", "database", "identifier", "ticks")
# No worker fired these ticks in time, and none will: they are not within the backfill period of their item. Of several
# workers that find them, one sends the signal.
cron_missed = NamedSignal("worker_id", "database", "identifier", "number", "first_tick", "last_tick")

# The worker has seen schedules for the first time, and enabled schedules have tasks that the project does not have.
schedule_tasks_not_found = NamedSignal("worker_id", "database", "tasks")
# The worker begins to fire schedules, and schedules that people made have the names of tasks with an interval.
schedule_names_taken = NamedSignal("worker_id", "database", "names")
# Schedules of the database. Of several workers, the worker that handles the ticks sends the signal, after the commit.
schedule_fired = NamedSignal("worker_id", "database", "schedule_id", "name", "task", "ticks", "job_ids")
# The ticks got no job because the last run was not over: reason is "overlap".
schedule_skipped = NamedSignal("worker_id", "database", "schedule_id", "name", "task", "ticks", "reason")
# The ticks got no job because no worker was there to fire them in time.
schedule_missed = NamedSignal(
    "worker_id", "database", "schedule_id", "name", "task", "number", "first_tick", "last_tick"
)

# A statement failed; the worker tries again after retry_in.
database_trouble = NamedSignal("worker_id", "database", "action", "error", "retry_in")
# Every part of the worker reaches the database again; duration is the length of the outage.
database_answered = NamedSignal("worker_id", "database", "duration")
# The worker schema lacks some of its indexes, so finding jobs is slow. Each worker sends this once.
indexes_missed = NamedSignal("worker_id", "database", "missing", "incomplete")
# Jobs wait for tasks that no live worker has. Each worker sends each name once, and again when the name comes back.
tasks_unserved = NamedSignal("worker_id", "database", "identifiers")
# The setting TASKS or EXCLUDE_TASKS names tasks that the project does not have. Sent when the worker starts.
tasks_not_found = NamedSignal("worker_id", "database", "setting", "patterns")
