"""Problems that the overview reports, each with its cause and its remedy, and alarms about events of the last day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker import conf, registry
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.events import EventText
from django_graphile_worker.admin.formatting import byte_size, duration
from django_graphile_worker.admin.overview.figures import OverviewFigures
from django_graphile_worker.admin.overview.tasks import TaskFigures
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.event_texts import Name, Sentence, suspects
from django_graphile_worker.recurring import late_items
from django_graphile_worker.sql.events import ALARM_HOURS, ERROR, Alarm
from django_graphile_worker.sql.inspection import lock_holders
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.inspection.lock_holders import Holder
from django_graphile_worker.sql.inspection.overview import (
    CLOCK_DIFFERENCE,
    DEAD_ROWS_STAY,
    FULL_NOTIFY_QUEUE,
    LONG_TRANSACTION,
    MANY_DEAD_ROWS,
    Health,
    TaskBacklog,
)

OLD_LOCK = 3600.0
# Seconds after which a task that has all slots is a problem for others.
LONG_RUN = 60.0
# Seconds after which a deploy has probably not replaced all workers.
MIXED_FOR_LONG = 6 * 3600.0
MAX_NAMES = 5
UNSERVED = "tasks_unserved"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with its cause, when it was, and its remedy; ``level`` is "error" or "warning"."""

    level: str
    cause: str
    remedy: str = ""
    since: str = ""
    # For an alarm that the user may dismiss: the kind of its events, and the time of the last of them.
    dismissed_kind: str = ""
    dismissed_until: str = ""


def _is_alive(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def _late_schedules(late: Sequence[tuple[str, float]]) -> Iterator[Problem]:
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
    yield Problem("error", text % values, remedy)


def _failing_schedules(number: int) -> Iterator[Problem]:
    """Yield the problem that schedules are failing, given how many they are."""
    if number:
        text = ngettext("%(number)s schedule is failing.", "%(number)s schedules are failing.", number)
        remedy = _("The last run failed, and none has succeeded since. See the tab Failing of Schedules.")
        yield Problem("warning", text % {"number": formatting.number(number)}, remedy)


def _known_tasks(holders: Sequence[Holder]) -> frozenset[str] | None:
    """Return the tasks of all live workers; None if no worker is alive, or if one has not registered its tasks."""
    alive = [holder for holder in holders if _is_alive(holder)]
    if not alive or not all(holder.tasks for holder in alive):
        return None
    return frozenset(task for holder in alive for task in holder.tasks)


def all_problems(page: PageAdmin, request: HttpRequest, read: OverviewFigures) -> list[Problem]:
    """Return all problems and alarms, errors before warnings."""
    ready, alias = read.counts[State.READY], databases.selected_alias(request)
    ages = read.tasks.backlog_ages
    # Whether tasks are unserved now is usually known: the event may be over, and if not, it would be said twice.
    alarms = [each for each in read.alarms if ages is None or each.event.kind != UNSERVED]
    found = [
        *_worker_problems(read.holders, bool(ready.number or ready.is_more), read.now),
        *_task_problems(read.holders, ages or ()),
        *_slot_problems(read.tasks),
        *_lock_problems(read.holders),
        *_database_problems(read.health),
        *_clock_problems(read.app_clock - read.health.now),
        *([_many_dead_rows(read.health)] if _have_dead_rows_stayed(alias, read.health) else []),
        *_late_schedules(_late(read)),
        *_failing_schedules(read.failing_schedules),
        *_event_problems(page, request, alarms),
    ]
    return sorted(found, key=lambda problem: problem.level != "error")


def _late(read: OverviewFigures) -> list[tuple[str, float]]:
    """Return the names of what is late, the longest late first, each with the seconds since it was due."""
    of_code = [(item.name, seconds) for item, seconds in late_items(read_crontab()[0], read.known_items, read.now)]
    now = formatting.aware(read.now)
    of_database = [(each.name, (now - each.due_at).total_seconds()) for each in read.late_schedules]
    return sorted([*of_code, *of_database], key=lambda pair: -pair[1])


def _worker_problems(holders: Sequence[Holder], has_ready_jobs: bool, now: datetime) -> Iterator[Problem]:
    alive = [holder for holder in holders if _is_alive(holder)]
    if not alive:
        yield _no_worker(has_ready_jobs)
    if dead := [holder for holder in holders if holder.is_registered and not _is_alive(holder)]:
        yield _lost(dead)
    yield from _mixed_versions(alive, now)
    polling = [str(holder.id) for holder in alive if holder.only_polls and holder.listens]
    if polling and conf.current().listen:
        yield _only_polling(polling)


def _no_worker(has_ready_jobs: bool) -> Problem:
    remedy = _("Start a worker with “manage.py runworker”.")
    if has_ready_jobs:
        return Problem("error", _("Jobs are ready, but no worker is running."), remedy)
    return Problem("warning", _("No worker is running."), remedy)


def _lost(dead: Sequence[Holder]) -> Problem:
    silences = [
        _("%(worker)s (no heartbeat for %(duration)s)")
        % {"worker": holder.host, "duration": duration(holder.silent_seconds, 1)}
        for holder in dead
    ]
    return Problem(
        "error",
        _("Worker lost: %(workers)s.") % {"workers": _listed(silences)},
        _(
            "Other workers recover its jobs within about a minute. If no worker is running, start one, "
            "or force-unlock this worker."
        ),
    )


def _mixed_versions(alive: Sequence[Holder], now: datetime) -> Iterator[Problem]:
    """Yield the problem that a deploy was never finished: workers of an earlier version still run after hours."""
    versions = lock_holders.versions_of(alive, conf.current().worker_timeout)
    if len(versions) < 2:
        return
    since = min(formatting.aware(each.started_at) for each in alive if each.version == list(versions)[-1])
    seconds = (formatting.aware(now) - since).total_seconds()
    if seconds > MIXED_FOR_LONG:
        text = _("Workers of several versions have run side by side for %(duration)s. %(versions)s.")
        remedy = _("Restart the workers of the earlier version. A later release may not share the schema with them.")
        values = {"duration": duration(seconds, 1), "versions": formatting.versions(versions)}
        yield Problem("warning", text % values, remedy)


def _only_polling(names: Sequence[str]) -> Problem:
    return Problem(
        "warning",
        _("Polling instead of listening: %(workers)s.") % {"workers": _listed(names)},
        _(
            "Jobs start up to a poll interval late. A pooler in transaction mode cannot LISTEN: "
            "give workers a direct connection."
        ),
    )


def _task_problems(holders: Sequence[Holder], backlogs: Sequence[TaskBacklog]) -> Iterator[Problem]:
    known = _known_tasks(holders)
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
    yield Problem("error", cause, remedy)


def _slot_problems(tasks: TaskFigures) -> Iterator[Problem]:
    """Yield the problem that jobs of one task have had all slots for long, while others wait."""
    full, ages = tasks.in_all_slots, tasks.backlog_ages
    if full is None or full.seconds < LONG_RUN:
        return
    if ages is not None and not any(each.ready and each.task_identifier != full.task_identifier for each in ages):
        return
    text = ngettext(
        "The only slot runs %(task)s, for %(duration)s already.",
        "All %(number)s slots run %(task)s, for %(duration)s or longer.",
        tasks.slots.total,
    )
    values = {"number": tasks.slots.total, "task": full.task_identifier, "duration": duration(full.seconds, 1)}
    remedy = _(
        "Jobs of other tasks wait for a slot. Start more workers, or give the task a limit or workers of its own."
    )
    yield Problem("warning", text % values, remedy)


def _lock_problems(holders: Sequence[Holder]) -> Iterator[Problem]:
    for holder in holders:
        age = holder.oldest_lock_seconds or 0.0
        if not holder.is_registered and age > OLD_LOCK:
            yield Problem(
                "warning",
                _("%(worker)s has held a lock for %(duration)s, and is not registered.")
                % {"worker": holder.id, "duration": duration(age)},
                _("Its locks are released after four hours. If the worker has ended, force-unlock it under Workers."),
            )


def _database_problems(health: Health) -> Iterator[Problem]:
    if health.notify_queue_usage > FULL_NOTIFY_QUEUE:
        yield Problem(
            "error",
            _("The NOTIFY queue of the database is %(share)s full.")
            % {"share": formatting.percentage(health.notify_queue_usage)},
            _("From 90% on, workers find jobs only by polling. End the session that listens in a long transaction."),
        )
    if (health.oldest_transaction_seconds or 0.0) > LONG_TRANSACTION:
        yield _long_transaction(health)


# The time of the database at which this process first saw many dead rows, by the alias of the database.
_dead_rows_since: dict[str, float] = {}


def _have_dead_rows_stayed(alias: str, health: Health) -> bool:
    """Return whether there are many dead rows, and have been for so long that autovacuum should have removed them.

    A change of many jobs leaves as many dead rows. The server does not tell how old they are.
    """
    is_explained = (health.oldest_transaction_seconds or 0.0) > LONG_TRANSACTION
    if is_explained or health.dead_rows <= max(MANY_DEAD_ROWS, health.estimated_jobs):
        _dead_rows_since.pop(alias, None)
        return False
    return health.now - _dead_rows_since.setdefault(alias, health.now) >= DEAD_ROWS_STAY


def _many_dead_rows(health: Health) -> Problem:
    return Problem(
        "warning",
        _("The table has %(dead)s dead rows and a size of %(size)s.")
        % {"dead": formatting.number(health.dead_rows), "size": byte_size(health.table_bytes)},
        _("Autovacuum does not keep up. VACUUM the table, and let autovacuum run on it more often."),
    )


def _long_transaction(health: Health) -> Problem:
    return Problem(
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


def _clock_problems(difference: float) -> Iterator[Problem]:
    if abs(difference) > CLOCK_DIFFERENCE:
        yield Problem(
            "warning",
            _("The clocks of this server and of the database differ by %(duration)s.")
            % {"duration": duration(abs(difference))},
            _("Jobs are due by the clock of the database. Synchronize both clocks with NTP."),
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown}, … ({formatting.number(len(names))})"


def _event_problems(page: PageAdmin, request: HttpRequest, alarms: Sequence[Alarm]) -> list[Problem]:
    """Return the alarms as the overview shows its problems."""
    text = EventText(page, request)
    may_dismiss = page.has_app_permission(request, "dismiss_event")
    return [_problem(text, alarm, may_dismiss=may_dismiss) for alarm in alarms]


def _problem(text: EventText, alarm: Alarm, *, may_dismiss: bool) -> Problem:
    event = alarm.event
    is_repeated_loss = event.kind == "worker_lost" and alarm.number > 1
    cause = text.joined([_losses(alarm), *suspects(alarm.suspects)]) if is_repeated_loss else text.of(event)
    return Problem(
        level="error" if event.severity >= ERROR else "warning",
        cause=cause,
        since=_when(alarm, is_counted=is_repeated_loss),
        dismissed_kind=event.kind if may_dismiss else "",
        dismissed_until=event.last_at.isoformat(),
    )


def _losses(alarm: Alarm) -> Sentence:
    event = alarm.event
    values = {"worker": Name("worker", event.subject, event.worker_id or "")}
    if alarm.in_last_hour > 1:
        text = _("Worker lost %(number)s times in the last hour: last %(worker)s.")
        return Sentence(text, {**values, "number": alarm.in_last_hour})
    text = _("Worker lost %(number)s times in the last %(hours)s hours: last %(worker)s.")
    return Sentence(text, {**values, "number": alarm.number, "hours": ALARM_HOURS})


def _when(alarm: Alarm, *, is_counted: bool) -> SafeString | str:
    last = formatting.relative_time(alarm.event.last_at)
    if is_counted or alarm.number == 1:
        return last
    text = _("%(number)s times in the last %(hours)s hours") % {"number": alarm.number, "hours": ALARM_HOURS}
    return format_html("{} ({})", last, text)
