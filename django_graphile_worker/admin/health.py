"""What is wrong, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_graphile_worker import conf, registry
from django_graphile_worker.admin.formatting import duration, size
from django_graphile_worker.sql.inspection.lock_holders import Holder
from django_graphile_worker.sql.inspection.overview import Health, TaskBacklog

LONG_TRANSACTION = 600.0
MANY_DEAD_ROWS = 50_000
FULL_NOTIFY_QUEUE = 0.1
OLD_LOCK = 3600.0
CLOCK_DIFFERENCE = 5.0
MOST_NAMED = 5


class Alarm(NamedTuple):
    """A cause and its remedy."""

    level: str
    cause: str
    remedy: str


def is_alive(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def tasks_of(holder: Holder) -> list[str]:
    tasks = holder.metadata.get("tasks")
    return [task for task in tasks if isinstance(task, str)] if isinstance(tasks, list) else []


def known_tasks(holders: Sequence[Holder]) -> frozenset[str] | None:
    """The tasks that live workers have; None when there are none, or when not all of them say so."""
    alive = [holder for holder in holders if is_alive(holder)]
    if not alive or not all(tasks_of(holder) for holder in alive):
        return None
    return frozenset(task for holder in alive for task in tasks_of(holder))


def alarms(
    holders: Sequence[Holder],
    backlogs: Sequence[TaskBacklog],
    health: Health,
    app_clock: float,
    *,
    is_any_ready: bool,
) -> list[Alarm]:
    """Everything that somebody should know, the worst first."""
    found = [
        *_about_workers(holders, is_any_ready),
        *_about_tasks(holders, backlogs),
        *_about_locks(holders),
        *_about_database(health),
    ]
    difference = app_clock - health.now
    if abs(difference) > CLOCK_DIFFERENCE:
        found.append(
            Alarm(
                "warning",
                _("This server's clock and the database's differ by %(duration)s.")
                % {"duration": duration(abs(difference))},
                _("Jobs are due by the database's clock. Synchronise both with NTP."),
            )
        )
    return sorted(found, key=lambda alarm: alarm.level != "error")


def _about_workers(holders: Sequence[Holder], is_any_ready: bool) -> Iterator[Alarm]:
    alive = [holder for holder in holders if is_alive(holder)]
    if not alive and is_any_ready:
        yield Alarm("error", _("Jobs are ready, and no worker is running."), _("Start one with “manage.py runworker”."))
    silent = [holder for holder in holders if holder.started_at is not None and not is_alive(holder)]
    if silent:
        yield Alarm(
            "error",
            _("Stopped beating: %(workers)s.") % {"workers": _named([str(holder.id) for holder in silent])},
            _("Another worker frees its jobs within a minute or so. If none is running, start one or force-unlock it."),
        )
    deaf = [holder for holder in alive if holder.metadata.get("is_listening") is False and conf.current().listen]
    if deaf:
        yield Alarm(
            "warning",
            _("Not listening, only polling: %(workers)s.") % {"workers": _named([str(holder.id) for holder in deaf])},
            _(
                "Jobs start up to a poll interval late. A transaction-mode pooler cannot LISTEN: "
                "give workers a direct address."
            ),
        )


def _about_tasks(holders: Sequence[Holder], backlogs: Sequence[TaskBacklog]) -> Iterator[Alarm]:
    known = known_tasks(holders)
    if known is None:
        return
    lonely = [each.task_identifier for each in backlogs if each.ready and each.task_identifier not in known]
    if not lonely:
        return
    here = [task for task in lonely if task in registry.tasks]
    remedy = (
        _("This site has them, so a worker needs to be restarted, or runs with TASKS or EXCLUDE_TASKS.")
        if len(here) == len(lonely)
        else _("Deploy the code that has them and restart the workers, or remove the jobs.")
    )
    yield Alarm("error", _("No worker knows the tasks of ready jobs: %(tasks)s.") % {"tasks": _named(lonely)}, remedy)


def _about_locks(holders: Sequence[Holder]) -> Iterator[Alarm]:
    for holder in holders:
        age = holder.oldest_lock_seconds or 0.0
        if holder.started_at is None and age > OLD_LOCK:
            yield Alarm(
                "warning",
                _("%(worker)s has held a lock for %(duration)s, and is not registered here.")
                % {"worker": holder.id, "duration": duration(age)},
                _("It is freed after four hours. If that worker is certainly gone, force-unlock it under Workers."),
            )


def _about_database(health: Health) -> Iterator[Alarm]:
    if health.notify_queue_usage > FULL_NOTIFY_QUEUE:
        yield Alarm(
            "error",
            _("The database's NOTIFY queue is %(share)s full.") % {"share": f"{health.notify_queue_usage:.0%}"},
            _("From 90% on, workers find jobs only by polling. End the session that listens in a long transaction."),
        )
    age = health.oldest_transaction_seconds or 0.0
    if age > LONG_TRANSACTION:
        yield Alarm(
            "warning",
            _("A transaction has been open for %(duration)s (pid %(pid)s, %(application)s).")
            % {
                "duration": duration(age),
                "pid": health.oldest_transaction_pid,
                "application": health.oldest_transaction_application or _("unnamed"),
            },
            _("Until it ends, finished jobs leave dead rows behind (%(dead)s so far) and claims get slower.")
            % {"dead": f"{health.dead_rows:,}"},
        )
    elif health.dead_rows > max(MANY_DEAD_ROWS, health.estimated_jobs):
        yield Alarm(
            "warning",
            _("%(dead)s dead rows in a table of %(size)s.")
            % {"dead": f"{health.dead_rows:,}", "size": size(health.table_bytes)},
            _("Autovacuum does not keep up: VACUUM the table, and let autovacuum run more often on it."),
        )


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown}, … ({len(names)})"
