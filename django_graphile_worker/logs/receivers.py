"""The log: one subscriber of the signals, one line for each thing worth a line.

Lines about jobs go to ``django_graphile_worker.jobs``, the others to
``.worker``, ``.cron`` and ``.database``. Each record carries its facts as
attributes too (``job_id``, ``task_identifier``, …; see the reference of
signals), and never a payload. The message of a record is a template, the same for
all records of a kind, with the values as its arguments: error trackers group by it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django_graphile_worker import conf, signals
from django_graphile_worker.durations import spoken
from django_graphile_worker.escaping import escaped, shown
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.throttle import Repetitions

__all__ = ["connect", "escaped", "served_databases", "shown"]

_jobs = logging.getLogger("django_graphile_worker.jobs")
_worker = logging.getLogger("django_graphile_worker.worker")
_cron = logging.getLogger("django_graphile_worker.cron")
_database = logging.getLogger("django_graphile_worker.database")

_troubles = Repetitions()


class _Databases:
    """Those that this process works on; their names are only worth reading if there are several."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: list[str] = []
        self.are_several = False

    def add(self, aliases: Iterable[str]) -> None:
        with self._lock:
            self._served.extend(aliases)
            self.are_several = len(set(self._served)) > 1

    def remove(self, aliases: Iterable[str]) -> None:
        with self._lock:
            for alias in aliases:
                if alias in self._served:
                    self._served.remove(alias)
            self.are_several = len(set(self._served)) > 1


served_databases = _Databases()


def connect() -> None:
    """Subscribe to every signal that has a line; calling it again changes nothing."""
    for name, receiver in _RECEIVERS.items():
        getattr(signals, name).connect(receiver, weak=False, dispatch_uid=_uid(name))
    # The two that come with every job: a line that nobody writes shall cost nothing.
    signals.job_started.heed_only_when(_uid("job_started"), _is_telling_starts)
    signals.job_succeeded.heed_only_when(_uid("job_succeeded"), _is_telling_successes)


def _uid(name: str) -> str:
    return f"django_graphile_worker.logs.receivers.{name}"


def _is_telling_starts(**kwargs: Any) -> bool:
    return _jobs.isEnabledFor(logging.DEBUG)


def _is_telling_successes(*, log_success: bool = True, **kwargs: Any) -> bool:
    # The worker's own setting, which need not be the project's: a command line or a caller may say otherwise.
    return log_success and _jobs.isEnabledFor(logging.INFO)


def _job_succeeded(*, job: Job, duration: float = 0.0, log_success: bool = True, **about: Any) -> None:
    if _is_telling_successes(log_success=log_success):
        _tell_job(logging.INFO, "succeeded", job, duration, about)


def _job_failed(
    *,
    job: Job,
    error: BaseException | None = None,
    duration: float = 0.0,
    retry_in: float | None = None,
    **about: Any,
) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        _tell_job(logging.WARNING, "failed", job, duration, about, error=error, retry_in=retry_in)


def _job_permanently_failed(
    *, job: Job, error: BaseException | None = None, duration: float = 0.0, **about: Any
) -> None:
    if _jobs.isEnabledFor(logging.ERROR):
        _tell_job(logging.ERROR, "permanently failed", job, duration, about, error=error)


def _job_interrupted(*, job: Job, duration: float = 0.0, **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        _tell_job(logging.WARNING, "interrupted", job, duration, about)


def _job_started(*, job: Job, **about: Any) -> None:
    if _is_telling_starts():
        template, place = _placed("%s #%s started (attempt %s of %s)", about)
        _jobs.debug(template, *place, *_name(job), *_attempt(job), extra=_facts(job, "started", about))


def _leftover_state_found(*, job: Job, leftovers: Sequence[str] = (), **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        line = "%s #%s is done, but left its connections changed, which were closed (%s)."
        template, place = _placed(f"{line} Use SET LOCAL, or undo it in a finally block.", about)
        left = shown("; ".join(leftovers))
        _jobs.warning(template, *place, *_name(job), left, extra=_facts(job, "leftover state", about))


def _claim_lost(*, job: Job, **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        line = "%s #%s was no longer ours when it ended (attempt %s of %s): its result is not written"
        template, place = _placed(line, about)
        _jobs.warning(template, *place, *_name(job), *_attempt(job), extra=_facts(job, "claim lost", about))


def _tell_job(
    level: int,
    outcome: str,
    job: Job,
    duration: float,
    about: Mapping[str, Any],
    *,
    error: BaseException | None = None,
    retry_in: float | None = None,
) -> None:
    template, place = _placed(f"%s #%s {outcome} after %s (attempt %s of %s)", about)
    arguments = [*place, *_name(job), spoken(duration), *_attempt(job)]
    facts: dict[str, object] = _facts(job, outcome, about) | {"duration": duration}
    if retry_in is not None:
        template, arguments = f"{template}, next try in %s", [*arguments, spoken(retry_in)]
    if error is None:
        _jobs.log(level, template, *arguments, extra=facts)
        return
    # Here, as a worker that starts has no error to tell yet, and shall not wait for it.
    from django_graphile_worker.logs.exc_info import worth_logging

    facts |= {"error": _problem(error), "retry_in": retry_in}
    exception = worth_logging(error, is_final=retry_in is None)
    _jobs.log(level, f"{template}: %s", *arguments, _problem(error), extra=facts, exc_info=exception)


def _placed(template: str, about: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The template and its first arguments, with the place in front where a process works on several."""
    place = _place(about)
    return (f"[%s] {template}", [shown(place)]) if place else (template, [])


def _place(about: Mapping[str, Any]) -> str | None:
    """Which database, or installation where these are named, a line is about, where that is a question."""
    return about.get(_place_key()) if served_databases.are_several else None


def _place_key() -> str:
    """What tells one queue of this project from another."""
    return "installation" if conf.are_installations_named() else "database"


def _facts(job: Job, outcome: str, about: Mapping[str, Any]) -> dict[str, object]:
    return {
        "job_id": job.id,
        "task_identifier": job.task_identifier,
        "queue_name": job.queue_name,
        "attempt": job.attempts,
        "max_attempts": job.max_attempts,
        "outcome": outcome,
        "worker_id": about.get("worker_id", ""),
        "database": about.get("database", ""),
        "installation": about.get("installation", ""),
    }


def _name(job: Job) -> tuple[str, int]:
    return shown(job.task_identifier), job.id


def _attempt(job: Job) -> tuple[int, int]:
    return job.attempts, job.max_attempts


def _problem(error: object) -> str:
    if not isinstance(error, BaseException):
        return shown(error)
    # Here: its patterns are 3 ms of a start that needs none of them.
    from django_graphile_worker.redaction import redact_text

    text = redact_text(shown(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _event(logger: logging.Logger, level: int, template: str) -> Callable[..., None]:
    """A receiver that writes the signal's arguments into one line."""

    def receiver(**arguments: Any) -> None:
        _write(logger, level, template, arguments)

    return receiver


def _write(logger: logging.Logger, level: int, template: str, arguments: Mapping[str, Any]) -> None:
    if logger.isEnabledFor(level):
        facts = {name: value for name, value in arguments.items() if name not in {"sender", "signal"}}
        told = _Lenient({name: _told(value) for name, value in facts.items()})
        key = _place_key()
        is_placed = served_databases.are_several and facts.get(key)
        logger.log(level, f"[%({key})s] {template}" if is_placed else template, told, extra=_extra(facts))


def _repeated(logger: logging.Logger, template: str) -> Callable[..., None]:
    """The same for troubles, which come back every few moments: now and then is enough, all of it is for DEBUG."""

    def receiver(**arguments: Any) -> None:
        worker_id, action, error = (arguments.get(name) for name in ("worker_id", "action", "error"))
        kept_back = _troubles.hear((worker_id, action, _kind(error)))
        line = f"{template} (%(kept_back)s more like it were not written)" if kept_back else template
        level = logging.DEBUG if kept_back is None else logging.WARNING
        _write(logger, level, line, arguments | ({"kept_back": kept_back} if kept_back else {}))

    return receiver


def _kind(error: object) -> str:
    """Server gone, refused, starting up: one trouble in many words."""
    code = getattr(error, "sqlstate", None)
    is_connection = code is None and any(kind.__name__ == "OperationalError" for kind in type(error).__mro__)
    return "connection" if is_connection or str(code).startswith(("08", "57P")) else type(error).__name__


def _worker_started(**arguments: Any) -> None:
    line = f"worker %(worker_id)s started on %({_place_key()})s: %(concurrency)s at a time"
    _write(_worker, logging.INFO, line, arguments)


def _database_answered(*, worker_id: str = "", **arguments: Any) -> None:
    _troubles.forget(lambda subject: isinstance(subject, tuple) and subject[0] == worker_id)
    _answered(worker_id=worker_id, **arguments)


def _jobs_recovered(*, job_ids: Sequence[int] = (), **arguments: Any) -> None:
    (_recovered_jobs if job_ids else _recovered_nothing)(job_ids=job_ids, **arguments)


def _tasks_unserved(*, identifiers: Sequence[str] = (), **arguments: Any) -> None:
    from django_graphile_worker.registry import tasks
    from django_graphile_worker.suggestions import did_you_mean

    hints = {name: did_you_mean(name, tasks.identifiers()) for name in identifiers}
    told = [f"{name} ({hint})" if hint and name not in tasks else name for name, hint in hints.items()]
    _unserved(identifiers=told, **arguments)


class _Lenient(dict[str, str]):
    """The arguments of a template: a line with a gap is better than no line."""

    def __bool__(self) -> bool:
        # logging would take an empty mapping for no arguments.
        return True

    def __missing__(self, key: str) -> str:
        return "?"


# A crontab may have thousands of items, all of them due at once.
MOST_TOLD = 100


def _told(value: object) -> str:
    if isinstance(value, BaseException):
        return _problem(value)
    if isinstance(value, float):
        return spoken(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        words = list(map(_word, value))
        more = f" and {len(words) - MOST_TOLD:,} more" if len(words) > MOST_TOLD else ""
        return shown((", ".join(words[:MOST_TOLD]) or "none") + more)
    return shown(value)


def _word(item: object) -> str:
    """A thing's name: a crontab item has one, and a payload, which is nobody's business here."""
    return str(getattr(item, "name", item))


def _extra(facts: Mapping[str, object]) -> dict[str, object]:
    return {name: _fact(value) for name, value in facts.items() if name not in _RESERVED}


def _fact(value: object) -> object:
    """Numbers as numbers, for whoever counts; everything else as in the line."""
    return value if value is None or isinstance(value, int | float) else _told(value)


# logging refuses extra attributes that a record has already.
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

_recovered_jobs = _event(
    _worker, logging.WARNING, "recovered the jobs %(job_ids)s of dead workers: %(dead_worker_ids)s"
)
_recovered_nothing = _event(_worker, logging.WARNING, "removed dead workers, which held no jobs: %(dead_worker_ids)s")

_answered = _event(_database, logging.INFO, "the database answers again after %(duration)s")

_unserved = _event(_worker, logging.WARNING, "jobs wait for tasks that no live worker has: %(identifiers)s")

_RECEIVERS: dict[str, Callable[..., None]] = {
    "worker_started": _worker_started,
    "worker_stopping": _event(_worker, logging.INFO, "worker %(worker_id)s is stopping: %(reason)s"),
    "worker_stopped": _event(_worker, logging.INFO, "worker %(worker_id)s stopped: %(reason)s"),
    "worker_lost_lease": _event(
        _worker, logging.WARNING, "worker %(worker_id)s lost its lease and goes on as %(new_worker_id)s"
    ),
    "listening_started": _event(_worker, logging.DEBUG, "worker %(worker_id)s is listening"),
    "listening_lost": _repeated(
        _worker, "worker %(worker_id)s stopped listening, tries again in %(retry_in)s: %(error)s"
    ),
    "schema_refused": _event(_worker, logging.ERROR, "worker %(worker_id)s stops: %(error)s"),
    "job_started": _job_started,
    "job_succeeded": _job_succeeded,
    "job_failed": _job_failed,
    "job_permanently_failed": _job_permanently_failed,
    "job_interrupted": _job_interrupted,
    "leftover_state_found": _leftover_state_found,
    "claim_lost": _claim_lost,
    "results_refused": _event(
        _worker,
        logging.ERROR,
        "worker %(worker_id)s stops without the results of the jobs %(job_ids)s, which the database refuses to take: "
        "they stay locked until the worker's lease is over, and run again then",
    ),
    "jobs_recovered": _jobs_recovered,
    "tasks_unserved": _tasks_unserved,
    "stale_locks_released": _event(_worker, logging.WARNING, "released stale locks: jobs %(jobs)s, queues %(queues)s"),
    "cron_started": _event(_cron, logging.INFO, "cron started: %(items)s"),
    "cron_scheduled": _event(_cron, logging.INFO, "cron scheduled %(identifiers)s for %(tick)s"),
    "cron_backfilled": _event(_cron, logging.INFO, "cron backfilled %(identifier)s: %(ticks)s"),
    "database_trouble": _repeated(_database, "%(action)s failed, next try in %(retry_in)s: %(error)s"),
    "database_answered": _database_answered,
    "indexes_missed": _event(
        _database,
        logging.WARNING,
        "where jobs are many they are found slowly, as the worker schema has not all its indexes (missing: "
        '%(missing)s; incomplete: %(incomplete)s): run "manage.py graphile_worker repair"',
    ),
}
