"""Problems that the overview reports, each with its cause and its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker import conf, registry
from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.formatting import byte_size, duration
from django_graphile_worker.sql.inspection.lock_holders import Holder
from django_graphile_worker.sql.inspection.overview import Health, TaskBacklog

LONG_TRANSACTION = 600.0
MANY_DEAD_ROWS = 50_000
# Seconds in which autovacuum removes the dead rows of a change of many jobs.
DEAD_ROWS_STAY = 600.0
FULL_NOTIFY_QUEUE = 0.1
OLD_LOCK = 3600.0
CLOCK_DIFFERENCE = 5.0
MOST_NAMES = 5
UNSERVED = "tasks_unserved"


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """A problem, with its cause and its remedy; `level` is "error" or "warning"."""

    level: str
    cause: str
    remedy: str
    # For an alarm that the user may dismiss: the kind of its events, and the time of the last of them.
    dismissed_kind: str = ""
    dismissed_until: str = ""
    # The kind of events that report the same problem: while it lasts, an alarm about them would say it twice.
    event_kind: str = ""


def is_alive(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def host_of(holder: Holder) -> str:
    """Return the host of a worker, or its id if it has registered no host."""
    host = holder.metadata.get("host")
    return host if isinstance(host, str) and host else str(holder.id)


def late_schedules(late: Sequence[tuple[str, float]]) -> Iterator[HealthProblem]:
    """Yield the problem that schedules are late, given the name of each with the seconds since it was due."""
    if not late:
        return
    name, seconds = late[0]
    text = ngettext(
        "Schedule late: %(name)s was due %(duration)s ago.",
        "%(number)s schedules late: %(name)s was due %(duration)s ago.",
        len(late),
    )
    values = {"name": name, "duration": duration(seconds, 1), "number": len(late)}
    remedy = _("No worker that knows its task is running, or its worker does not reach the database. See Schedules.")
    yield HealthProblem("error", text % values, remedy)


def failing_schedules(number: int) -> Iterator[HealthProblem]:
    """Yield the problem that schedules are failing, given how many they are."""
    if number:
        text = ngettext("%(number)s schedule is failing.", "%(number)s schedules are failing.", number)
        remedy = _("The last run failed, and none has succeeded since. See the tab Failing of Schedules.")
        yield HealthProblem("warning", text % {"number": formatting.number(number)}, remedy)


def tasks_of(holder: Holder) -> list[str]:
    """Return the tasks that a worker has registered."""
    tasks = holder.metadata.get("tasks")
    return [task for task in tasks if isinstance(task, str)] if isinstance(tasks, list) else []


def known_tasks(holders: Sequence[Holder]) -> frozenset[str] | None:
    """Return the tasks of all live workers; None if no worker is alive, or if one has not registered its tasks."""
    alive = [holder for holder in holders if is_alive(holder)]
    if not alive or not all(tasks_of(holder) for holder in alive):
        return None
    return frozenset(task for holder in alive for task in tasks_of(holder))


def health_problems(
    holders: Sequence[Holder],
    backlogs: Sequence[TaskBacklog],
    health: Health,
    app_clock: float,
    *,
    is_any_ready: bool,
) -> list[HealthProblem]:
    """Return all problems, errors before warnings."""
    found = [
        *_worker_problems(holders, is_any_ready),
        *_task_problems(holders, backlogs),
        *_lock_problems(holders),
        *_database_problems(health),
        *_clock_problems(app_clock - health.now),
    ]
    return sorted(found, key=lambda problem: problem.level != "error")


def _worker_problems(holders: Sequence[Holder], is_any_ready: bool) -> Iterator[HealthProblem]:
    alive = [holder for holder in holders if is_alive(holder)]
    if not alive:
        yield _no_worker(is_any_ready)
    if dead := [holder for holder in holders if holder.is_registered and not is_alive(holder)]:
        yield _lost(dead)
    polling = [str(holder.id) for holder in alive if holder.metadata.get("is_listening") is False]
    if polling and conf.current().listen:
        yield _only_polling(polling)


def _no_worker(is_any_ready: bool) -> HealthProblem:
    remedy = _("Start a worker with “manage.py runworker”.")
    if is_any_ready:
        return HealthProblem("error", _("Jobs are ready, but no worker is running."), remedy)
    return HealthProblem("warning", _("No worker is running."), remedy)


def _lost(dead: Sequence[Holder]) -> HealthProblem:
    silences = [
        _("%(worker)s (no heartbeat for %(duration)s)")
        % {"worker": host_of(holder), "duration": duration(holder.silent_seconds, 1)}
        for holder in dead
    ]
    return HealthProblem(
        "error",
        _("Worker lost: %(workers)s.") % {"workers": _listed(silences)},
        _(
            "Other workers recover its jobs within about a minute. If no worker is running, start one, "
            "or force-unlock this worker."
        ),
    )


def _only_polling(names: Sequence[str]) -> HealthProblem:
    return HealthProblem(
        "warning",
        _("Polling instead of listening: %(workers)s.") % {"workers": _listed(names)},
        _(
            "Jobs start up to a poll interval late. A pooler in transaction mode cannot LISTEN: "
            "give workers a direct connection."
        ),
    )


def _task_problems(holders: Sequence[Holder], backlogs: Sequence[TaskBacklog]) -> Iterator[HealthProblem]:
    known = known_tasks(holders)
    if known is None:
        return
    unknown = [each.task_identifier for each in backlogs if each.ready and each.task_identifier not in known]
    if not unknown:
        return
    remedy = (
        _("This site has these tasks. Restart the workers, or check their settings TASKS and EXCLUDE_TASKS.")
        if all(task in registry.tasks for task in unknown)
        else _("Deploy the code of these tasks and restart the workers, or delete the jobs.")
    )
    cause = _("No worker has the tasks of some ready jobs: %(tasks)s.") % {"tasks": _listed(unknown)}
    yield HealthProblem("error", cause, remedy, event_kind=UNSERVED)


def _lock_problems(holders: Sequence[Holder]) -> Iterator[HealthProblem]:
    for holder in holders:
        age = holder.oldest_lock_seconds or 0.0
        if not holder.is_registered and age > OLD_LOCK:
            yield HealthProblem(
                "warning",
                _("%(worker)s has held a lock for %(duration)s, and is not registered.")
                % {"worker": holder.id, "duration": duration(age)},
                _("Its locks are released after four hours. If the worker has ended, force-unlock it under Workers."),
            )


def _database_problems(health: Health) -> Iterator[HealthProblem]:
    if health.notify_queue_usage > FULL_NOTIFY_QUEUE:
        yield HealthProblem(
            "error",
            _("The NOTIFY queue of the database is %(share)s full.")
            % {"share": formatting.percentage(health.notify_queue_usage)},
            _("From 90% on, workers find jobs only by polling. End the session that listens in a long transaction."),
        )
    if (health.oldest_transaction_seconds or 0.0) > LONG_TRANSACTION:
        yield _long_transaction(health)


# The time of the database at which this process first saw many dead rows, by the alias of the database.
_dead_rows_since: dict[str, float] = {}


def have_dead_rows_stayed(alias: str, health: Health) -> bool:
    """Return whether there are many dead rows, and have been for so long that autovacuum should have removed them.

    A change of many jobs leaves as many dead rows. The server does not tell how old they are.
    """
    is_explained = (health.oldest_transaction_seconds or 0.0) > LONG_TRANSACTION
    if is_explained or health.dead_rows <= max(MANY_DEAD_ROWS, health.estimated_jobs):
        _dead_rows_since.pop(alias, None)
        return False
    return health.now - _dead_rows_since.setdefault(alias, health.now) >= DEAD_ROWS_STAY


def many_dead_rows(health: Health) -> HealthProblem:
    return HealthProblem(
        "warning",
        _("The table has %(dead)s dead rows and a size of %(size)s.")
        % {"dead": formatting.number(health.dead_rows), "size": byte_size(health.table_bytes)},
        _("Autovacuum does not keep up. VACUUM the table, and let autovacuum run on it more often."),
    )


def _long_transaction(health: Health) -> HealthProblem:
    return HealthProblem(
        "warning",
        _("A transaction has been open for %(duration)s (pid %(pid)s, %(application)s).")
        % {
            "duration": duration(health.oldest_transaction_seconds),
            "pid": health.oldest_transaction_pid,
            "application": health.oldest_transaction_application or _("unnamed"),
        },
        _("Until it ends, finished jobs leave dead rows (%(dead)s so far), and the table grows.")
        % {"dead": formatting.number(health.dead_rows)},
    )


def _clock_problems(difference: float) -> Iterator[HealthProblem]:
    if abs(difference) > CLOCK_DIFFERENCE:
        yield HealthProblem(
            "warning",
            _("The clocks of this server and of the database differ by %(duration)s.")
            % {"duration": duration(abs(difference))},
            _("Jobs are due by the clock of the database. Synchronize both clocks with NTP."),
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, … ({formatting.number(len(names))})"
