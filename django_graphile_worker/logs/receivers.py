"""The receivers that write the log: a line for each signal in ``_RECEIVERS``.

Lines about jobs go to ``django_graphile_worker.jobs``, the others to
``.worker``, ``.cron`` and ``.database``. Each record has its facts as
attributes, too (``job_id``, ``task_identifier``, …; see the reference of
signals), and never a payload. The message of a record is a template, the same for
all records of a kind, with the values as its arguments: error trackers group by it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django_graphile_worker import signals
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs import console
from django_graphile_worker.logs.errors import error_text, log_exception
from django_graphile_worker.logs.lines import JobFacts, job_attributes, place_key, with_place, write
from django_graphile_worker.logs.structured import run_template
from django_graphile_worker.registry import tasks
from django_graphile_worker.text import did_you_mean, readable_duration, shown

_jobs = logging.getLogger("django_graphile_worker.jobs")
_worker = logging.getLogger("django_graphile_worker.worker")
_cron = logging.getLogger("django_graphile_worker.cron")
_database = logging.getLogger("django_graphile_worker.database")

# Seconds between two lines about the same failure.
THROTTLE_INTERVAL = 60.0
# undefined_function, undefined_table and undefined_column: the code is newer than the schema.
INCOMPLETE_SCHEMA = frozenset({"42883", "42P01", "42703"})
MIGRATE = '; the worker schema lacks something that this version needs: run "manage.py migrate graphile_worker"'
# What was paused or resumed. Each record has an attribute of its own that is called name.
_NAMES = {"queue": "queue_name", "task": "task_identifier", "flag": "flag"}


def connect() -> None:
    """Connect a receiver to every signal that has a line; calling it again changes nothing."""
    for name, receiver in _RECEIVERS.items():
        getattr(signals, name).connect(receiver, weak=False, dispatch_uid=_uid(name))
    # Workers send these two signals for every job: a signal whose line is not written must cost nothing.
    signals.job_started.mute_unless(_uid("job_started"), _logs_starts)
    signals.job_succeeded.mute_unless(_uid("job_succeeded"), _logs_successes)
    # An action of the admin can cancel thousands of jobs, and reads them only if something hears of them.
    signals.job_cancelled.mute_unless(_uid("job_cancelled"), _logs_cancellations)


def _uid(name: str) -> str:
    return f"django_graphile_worker.logs.receivers.{name}"


def _logs_starts(**kwargs: Any) -> bool:
    return _jobs.isEnabledFor(logging.DEBUG)


def _logs_successes(*, log_success: bool = True, **kwargs: Any) -> bool:
    # LOG_SUCCESS of the worker may differ from that of the project: a command line or a caller can override it.
    return log_success and _jobs.isEnabledFor(logging.INFO)


def _logs_cancellations(**kwargs: Any) -> bool:
    return _jobs.isEnabledFor(logging.INFO)


def _job_started(*, job: Job | JobFacts, **about: Any) -> None:
    if _logs_starts():
        _log_job(logging.DEBUG, "%s #%s started (attempt %s of %s)", job, "started", about)


def _job_succeeded(*, job: Job | JobFacts, duration: float = 0.0, log_success: bool = True, **about: Any) -> None:
    # The short way saves most of what the line costs; with receivers of the site, lines come here, too.
    if not _logs_successes(log_success=log_success):
        return
    if not console.write_success(job.task_identifier, job, duration, about):
        _log_run(logging.INFO, "succeeded", job, duration, about)


def _job_failed(
    *,
    job: Job,
    error: BaseException | None = None,
    duration: float = 0.0,
    retry_in: float | None = None,
    **about: Any,
) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        _log_run(logging.WARNING, "failed", job, duration, about, error=error, retry_in=retry_in)


def _job_permanently_failed(
    *, job: Job, error: BaseException | None = None, duration: float = 0.0, given_up_by: str = "", **about: Any
) -> None:
    if _jobs.isEnabledFor(logging.ERROR):
        _log_run(logging.ERROR, "permanently failed", job, duration, about, error=error, given_up_by=given_up_by)


def _job_interrupted(*, job: Job, duration: float = 0.0, **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        _log_run(logging.WARNING, "interrupted", job, duration, about)


def _job_cancelled(
    *, job: Job, duration: float | None = None, reason: str = "", cancelled_by: str = "", **about: Any
) -> None:
    if not _logs_cancellations():
        return
    template, place = with_place("%s #%s cancelled" if duration is None else run_template("cancelled"), about)
    arguments: list[object] = [*place, *_name(job)]
    if duration is not None:
        arguments += [readable_duration(duration), job.attempts, job.max_attempts]
    for joined, text in ((" by %s", cancelled_by), (": %s", reason)):
        if text:
            template, arguments = template + joined, [*arguments, shown(text)]
    why = {"duration": duration, "reason": shown(reason), "cancelled_by": shown(cancelled_by)}
    _jobs.info(template, *arguments, extra=job_attributes(job, "cancelled", about) | why)


def _job_expired(*, job: Job | JobFacts, expires_at: datetime | None = None, **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        template, place = with_place("%s #%s expired: it was not started by %s", about)
        extra = job_attributes(job, "expired", about) | {"expires_at": str(expires_at)}
        _jobs.warning(template, *place, *_name(job), expires_at, extra=extra)


def _claim_lost(*, job: Job, **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        line = "%s #%s was no longer claimed by this worker when it ended (attempt %s of %s): its result is not written"
        _log_job(logging.WARNING, line, job, "claim lost", about)


def _leftover_state_found(*, job: Job, leftovers: Sequence[str] = (), **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        line = "%s #%s succeeded, but left the state of its connections changed, so they were closed (%s)."
        template, place = with_place(f"{line} Use SET LOCAL, or undo it in a finally block.", about)
        left = shown("; ".join(leftovers))
        _jobs.warning(template, *place, *_name(job), left, extra=job_attributes(job, "leftover state", about))


def _thread_left_behind(*, job: Job, **about: Any) -> None:
    line = "%s #%s did not stop when it was asked to (attempt %s of %s): the worker continues without its thread"
    _log_job(logging.WARNING, line, job, "thread left behind", about)


def _log_job(level: int, line: str, job: Job | JobFacts, outcome: str, about: Mapping[str, Any]) -> None:
    """Log a line about a job that names it and its attempt."""
    template, place = with_place(line, about)
    attempt = (job.attempts, job.max_attempts)
    _jobs.log(level, template, *place, *_name(job), *attempt, extra=job_attributes(job, outcome, about))


def _log_run(
    level: int,
    outcome: str,
    job: Job | JobFacts,
    duration: float,
    about: Mapping[str, Any],
    *,
    error: BaseException | None = None,
    retry_in: float | None = None,
    given_up_by: str = "",
) -> None:
    """Log how a run ended, and the exception that ended it."""
    template, place = with_place(run_template(outcome), about)
    arguments = [*place, *_name(job), readable_duration(duration), job.attempts, job.max_attempts]
    attributes: dict[str, object] = job_attributes(job, outcome, about) | {"duration": duration}
    if retry_in is not None:
        template, arguments = f"{template}, next try in %s", [*arguments, readable_duration(retry_in)]
    if given_up_by:
        template, arguments = f"{template}, not retried because of %s", [*arguments, given_up_by]
    if error is None:
        _jobs.log(level, template, *arguments, extra=attributes)
        return
    text = error_text(error)
    attributes |= {"error": text, "retry_in": retry_in}
    line = f"{template}: %s"
    log_exception(_jobs, level, line, *arguments, text, error=error, attributes=attributes, is_final=retry_in is None)


def _name(job: Job | JobFacts) -> tuple[str, int]:
    return shown(job.task_identifier), job.id


def _line(logger: logging.Logger, level: int, template: str) -> Callable[..., None]:
    """Return a receiver that writes the arguments of a signal into one line."""

    def receiver(**arguments: Any) -> None:
        write(logger, level, template, arguments)

    return receiver


class Throttle:
    """Limits how often the same line is written: a log that repeats one failure thirty times hides the next failure.

    It admits each subject, of which the id of the worker is the first part, once per interval, and counts how often it
    rejected the subject in between.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # When each subject was last admitted, and how often it was rejected since.
        self._admitted: dict[tuple[str, ...], tuple[float, int]] = {}

    def admit(self, *subject: str) -> int | None:
        """Return how often the subject was rejected since it was last admitted, or None to reject it now."""
        now = self._clock()
        with self._lock:
            self._drop_old(now)
            admitted_at, kept_back = self._admitted.get(subject, (None, 0))
            if admitted_at is not None and now - admitted_at < THROTTLE_INTERVAL:
                self._admitted[subject] = (admitted_at, kept_back + 1)
                return None
            self._admitted[subject] = (now, 0)
            return kept_back

    def forget(self, worker_id: str) -> None:
        """Forget the subjects of a worker, so that the next failure is admitted at once: what caused them has ended."""
        with self._lock:
            self._admitted = {subject: entry for subject, entry in self._admitted.items() if subject[0] != worker_id}

    def _drop_old(self, now: float) -> None:
        horizon = now - 2 * THROTTLE_INTERVAL
        self._admitted = {subject: entry for subject, entry in self._admitted.items() if entry[0] > horizon}


_throttle = Throttle()


def _throttled_line(logger: logging.Logger, template: str) -> Callable[..., None]:
    """Return a receiver for failures that repeat every few seconds.

    The same failure is a warning at most once per ``THROTTLE_INTERVAL``; in between it is logged at DEBUG.
    """

    def receiver(**arguments: Any) -> None:
        error = arguments.get("error")
        kept_back = _throttle.admit(arguments.get("worker_id", ""), arguments.get("action", ""), _kind(error))
        line = template + (MIGRATE if getattr(error, "sqlstate", None) in INCOMPLETE_SCHEMA else "")
        if kept_back:
            line = f"{line} (%(kept_back)s similar lines were not written)"
            arguments["kept_back"] = kept_back
        level = logging.DEBUG if kept_back is None else logging.WARNING
        write(logger, level, line, arguments)

    return receiver


def _kind(error: object) -> str:
    """Return the class of an error, or "connection" for all errors of a lost connection, which has many messages."""
    code = getattr(error, "sqlstate", None)
    is_connection = code is None and any(kind.__name__ == "OperationalError" for kind in type(error).__mro__)
    return "connection" if is_connection or str(code).startswith(("08", "57P")) else type(error).__name__


def _worker_started(**arguments: Any) -> None:
    line = f"worker %(worker_id)s started on %({place_key()})s: %(concurrency)s at a time"
    write(_worker, logging.INFO, line, arguments)


def _database_answered(*, worker_id: str = "", **arguments: Any) -> None:
    _throttle.forget(worker_id)
    line = "the database answers again after %(duration)s"
    write(_database, logging.INFO, line, {"worker_id": worker_id, **arguments})


def _jobs_recovered(*, job_ids: Sequence[int] = (), **arguments: Any) -> None:
    line = (
        "recovered the jobs %(job_ids)s of dead workers: %(dead_worker_ids)s"
        if job_ids
        else "removed dead workers, which held no jobs: %(dead_worker_ids)s"
    )
    write(_worker, logging.WARNING, line, {"job_ids": job_ids, **arguments})


def _tasks_unserved(*, identifiers: Sequence[str] = (), **arguments: Any) -> None:
    line = "jobs wait for tasks that no live worker has: %(identifiers)s"
    write(_worker, logging.WARNING, line, {"identifiers": _with_hints(identifiers), **arguments})


def _tasks_not_found(*, patterns: Sequence[str] = (), **arguments: Any) -> None:
    line = "%(setting)s names tasks that this project does not have: %(patterns)s"
    write(_worker, logging.WARNING, line, {"patterns": _with_hints(patterns), **arguments})


def _with_hints(names: Sequence[str]) -> list[str]:
    """Return names, each unknown name with the name that is probably meant."""
    hints = {name: did_you_mean(name, tasks.identifiers()) for name in names}
    return [f"{name} ({hint})" if hint and name not in tasks else name for name, hint in hints.items()]


def _work_changed(change: str) -> Callable[..., None]:
    """Return a receiver that writes what was paused or resumed, until when, by whom and why."""

    def receiver(*, until: datetime | None = None, by: str = "", reason: str = "", **arguments: Any) -> None:
        arguments[_NAMES.get(arguments.get("kind", ""), "flag")] = arguments.get("name")
        line = f"{change} the %(kind)s %(name)s"
        if change == "paused":
            line += " until it is resumed" if until is None else " until %(until)s"
        line += (", by %(by)s" if by else "") + (": %(reason)s" if reason and change == "paused" else "")
        write(_worker, logging.INFO, line, {"until": until, "by": by, "reason": reason, **arguments})

    return receiver


def _schedule_line(level: int, template: str) -> Callable[..., None]:
    """Return a receiver. Each record has an attribute of its own that is called name."""

    def receiver(**arguments: Any) -> None:
        write(_cron, level, template, {**arguments, "schedule_name": arguments.get("name")})

    return receiver


def _schedule_missed(**arguments: Any) -> None:
    single = "schedule %(name)s missed the tick of %(first_tick)s: no worker fired it"
    several = "schedule %(name)s missed %(number)s ticks, from %(first_tick)s to %(last_tick)s: no worker fired them"
    _schedule_line(logging.WARNING, single if arguments.get("number") == 1 else several)(**arguments)


_RECEIVERS: dict[str, Callable[..., None]] = {
    "worker_started": _worker_started,
    "worker_stopping": _line(_worker, logging.INFO, "worker %(worker_id)s is stopping: %(reason)s"),
    "worker_stopped": _line(_worker, logging.INFO, "worker %(worker_id)s stopped: %(reason)s"),
    "shutdown_failed": _line(
        _worker, logging.ERROR, "worker %(worker_id)s could not stop in order (%(reason)s): %(error)s"
    ),
    "worker_lost_lease": _line(
        _worker, logging.WARNING, "worker %(worker_id)s lost its lease and continues as %(new_worker_id)s"
    ),
    "listening_started": _line(_worker, logging.DEBUG, "worker %(worker_id)s is listening"),
    "listening_lost": _throttled_line(
        _worker, "worker %(worker_id)s stopped listening, next try in %(retry_in)s: %(error)s"
    ),
    "schema_refused": _line(_worker, logging.ERROR, "worker %(worker_id)s stops: %(error)s"),
    "job_started": _job_started,
    "job_succeeded": _job_succeeded,
    "job_failed": _job_failed,
    "job_permanently_failed": _job_permanently_failed,
    "job_interrupted": _job_interrupted,
    "job_cancelled": _job_cancelled,
    "job_expired": _job_expired,
    "cancellation_missed": _line(
        _jobs, logging.INFO, "job #%(job_id)s ended by itself before it could be stopped: it was cancelled too late"
    ),
    "leftover_state_found": _leftover_state_found,
    "thread_left_behind": _thread_left_behind,
    "claim_lost": _claim_lost,
    "results_refused": _line(
        _worker,
        logging.ERROR,
        "worker %(worker_id)s stops without the results of the jobs %(job_ids)s, which the database refuses to store: "
        "they stay locked until the worker's lease expires, and run again then",
    ),
    "jobs_recovered": _jobs_recovered,
    "tasks_unserved": _tasks_unserved,
    "tasks_not_found": _tasks_not_found,
    "stale_locks_released": _line(_worker, logging.WARNING, "released stale locks: jobs %(jobs)s, queues %(queues)s"),
    "work_paused": _work_changed("paused"),
    "work_resumed": _work_changed("resumed"),
    "cron_missed": _line(
        _cron,
        logging.WARNING,
        "cron missed %(number)s ticks of %(identifier)s, from %(first_tick)s to %(last_tick)s: no worker fired them",
    ),
    "schedule_tasks_not_found": _schedule_line(
        logging.WARNING, "schedules have tasks that this project does not have, and are not fired here: %(tasks)s"
    ),
    "schedule_names_taken": _schedule_line(
        logging.WARNING, "@task(every=...) is not fired: schedules of the database have the names of tasks: %(names)s"
    ),
    "schedule_fired": _schedule_line(
        logging.INFO, "schedule %(name)s added jobs of %(task)s: %(job_ids)s, for %(ticks)s"
    ),
    "schedule_skipped": _schedule_line(
        logging.INFO, "schedule %(name)s added no job of %(task)s for %(ticks)s: the last run is not over"
    ),
    "schedule_missed": _schedule_missed,
    "cron_started": _line(_cron, logging.INFO, "cron started: %(items)s"),
    "cron_scheduled": _line(_cron, logging.INFO, "cron scheduled %(identifiers)s for %(tick)s"),
    "cron_backfilled": _line(_cron, logging.INFO, "cron backfilled %(identifier)s: %(ticks)s"),
    "database_trouble": _throttled_line(_database, "%(action)s failed, next try in %(retry_in)s: %(error)s"),
    "database_answered": _database_answered,
    "indexes_missed": _line(
        _database,
        logging.WARNING,
        "finding jobs is slow while many wait, because the worker schema lacks some of its indexes (missing: "
        '%(missing)s; incomplete: %(incomplete)s): run "manage.py graphile_worker repair"',
    ),
}
