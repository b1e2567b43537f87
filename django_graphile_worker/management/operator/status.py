"""``status``, ``tasks`` and ``events``: the state of the queue, of each task, and what happened lately."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils import translation

from django_graphile_worker import registry
from django_graphile_worker.crontab.times import format_time_phrase
from django_graphile_worker.event_texts import GROUPS, KINDS, Style, describe
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.management.arguments import Argument, number, period, seconds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Columns, absolute, aware, both, counted
from django_graphile_worker.management.operator.jobs import is_known
from django_graphile_worker.management.operator.queues import pause_as_dict, pause_sentence
from django_graphile_worker.management.operator.verb import Options, Verb, did_you_mean, limit_of
from django_graphile_worker.management.operator.workers import in_words, worker_state
from django_graphile_worker.sql import control, events, statistics
from django_graphile_worker.sql.events import WARNING, EventCriteria, LoggedEvent
from django_graphile_worker.sql.inspection import job_list, known_names, overview
from django_graphile_worker.sql.inspection.gauges import read_gauges
from django_graphile_worker.sql.inspection.job_list import STATES, Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders, versions_of
from django_graphile_worker.sql.inspection.overview import (
    FULL_NOTIFY_QUEUE,
    MAX_COUNTED,
    TaskBacklog,
    oldest_unpaused,
    unserved_tasks,
)
from django_graphile_worker.sql.install.catalog import refuse_breaking_migration
from django_graphile_worker.sql.install.installer import foreign_functions
from django_graphile_worker.sql.statements import Cursor
from django_graphile_worker.sql.statistics import ALL, MINUTE, TASK, TEN_MINUTES
from django_graphile_worker.text import in_largest_unit, readable_duration

# Counting stops at this number: the exact number of more than ten thousand jobs makes no difference.
CAP = 10_000
# The throughput covers this many minutes. Workers write their statistics every few seconds.
RECENT = 5

MAX_AGE = timedelta(minutes=5)
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"

pause = time.sleep


class Status(Verb):
    name = "status"
    summary = "Show the queue on one screen; with --check, report its health by the exit code."
    description = (
        f"Count jobs by state (up to {CAP:,} each), the runs of the last {RECENT} minutes, and workers. With --check, "
        "exit with 1 and name the problem if fewer workers are alive than --min-workers, if a job has been ready for "
        "longer than --max-age (a job that is paused or waits for a limit does not count), if more jobs than "
        "--max-failed have failed permanently, if a silent worker still holds jobs, if the server's NOTIFY queue fills "
        "up, if another program has changed the schema so that this package cannot use it, or if nobody has the task "
        "of --task. To check a single worker process, use runworker --health-file."
    )
    examples = ("", "--watch", "--check --max-age 15m --max-failed 100 --min-workers 2", "--check --task billing:send")
    arguments = (
        Argument("--check", "", "Exit with 1 if the queue is not healthy."),
        Argument("--task", "TASK", "Count only jobs of this task; may be given several times.", action="append"),
        Argument(
            "--max-age", "PERIOD", "With --check: how long a job may be ready (default: 5m).", period, default=MAX_AGE
        ),
        Argument("--min-workers", "N", "With --check: expect N live workers (default: 1).", number(0), default=1),
        Argument("--max-failed", "N", "With --check: accept N failed jobs (default: any number).", number(0)),
        Argument("--watch", "SECONDS", "Repeat the output (default: every 2 s).", seconds, nargs="?", const=2.0),
    )

    def run(self, console: Console, options: Options) -> None:
        if options["watch"] is not None:
            if options["check"] or console.is_json:
                raise CommandError("--watch cannot be used with --check or --json.")
            _watch(console, options)
            return
        _look_up(console, options["task"] or (), must_exist=options["check"])
        status = read_status(console, options)
        if console.is_json:
            console.dump(status)
        else:
            console.facts(_facts(status), status["now"])
        if options["check"] and status["problems"]:
            raise CommandError(f"The queue is unhealthy: {'; '.join(status['problems'])}.")


def _look_up(console: Console, tasks: Sequence[str], *, must_exist: bool) -> None:
    """Warn of tasks that no job has had; with ``must_exist``, raise for names that no job, worker or project has."""
    if tasks:
        with console.reading() as (cursor, schema, _):
            for task in tasks:
                if must_exist:
                    _require_task(cursor, task, schema=schema)
                is_known(cursor, console, task, schema=schema)


def _require_task(cursor: Cursor, name: str, *, schema: str) -> None:
    """Raise CommandError for the name of a task that neither a job nor a worker nor this project has.

    A health check with a mistyped name would find no job, and always report a healthy queue.
    """
    if name in registry.tasks or known_names.meaning(cursor, name, schema=schema)[0]:
        return
    of_workers = {task for holder in holders(cursor, schema=schema) for task in holder.tasks}
    if name not in of_workers:
        known = {*registry.tasks.identifiers(), *of_workers, *known_names.known_tasks(cursor, schema=schema)}
        raise CommandError(
            f"--task: neither a job nor a worker nor this project has a task {name!r}.{did_you_mean(name, known)}"
        )


def _watch(console: Console, options: Options) -> None:
    try:
        while True:
            status = read_status(console, options)
            console.say(CLEAR_SCREEN if console.out.isatty() else "")
            console.facts(_facts(status), status["now"])
            console.out.flush()
            pause(options["watch"])
    except KeyboardInterrupt:
        console.say("")


def _facts(status: dict[str, Any]) -> dict[str, Any]:
    now, jobs, workers, recent = status["now"], status["jobs"], status["workers"], status["recent"]
    number = {state: f"{each['count']}{'+' if each['is_capped'] else ''}" for state, each in jobs.items()}
    oldest = f", the oldest for {in_largest_unit(status['oldest_ready_seconds'])}" if status["oldest_ready_job"] else ""
    following = f", the next {both(jobs['scheduled']['earliest'], now)}" if jobs["scheduled"]["earliest"] else ""
    limited = f"{number['limited']} due; they wait for a limit or for their turn" if jobs["limited"]["count"] else ""
    others = "".join(f", {recent[name]} {name}" for name in ("failed", "expired") if recent[name])
    succeeded = recent["succeeded"]
    timeouts = [f"{each:g} s" for each in workers["timeouts"]]
    unserved = [f"{each['identifier']} (#{each['job_id']} waits for it)" for each in status["tasks_without_worker"]]
    return {
        "problem": status["problems"],
        "ready": f"{number['ready']}{oldest}",
        "limited": limited,
        "scheduled": f"{number['scheduled']}{following}",
        "running": number["running"],
        "retrying": number["retrying"],
        "permanently failed": number["failed"],
        f"last {RECENT} minutes": f"{succeeded} succeeded ({succeeded / RECENT:.0f} a minute){others}",
        "workers alive": workers["alive"],
        "workers listening": workers["listening"],
        "workers stopping": workers["stopping"],
        "workers silent": workers["silent"],
        "other workers": workers["unregistered"],
        # During a deploy.
        "worker versions": in_words(workers["versions"]) if len(workers["versions"]) > 1 else "",
        # Usually, some workers were not restarted after a change of settings.
        "worker timeouts": ", ".join(timeouts) if len(timeouts) > 1 else "",
        "paused": [pause_sentence(each, now) for each in status["paused"]],
        "unserved tasks": ", ".join(unserved),
    }


def read_status(console: Console, options: Options) -> dict[str, Any]:
    """Read the state of the queue, or only of the jobs of some tasks, as JSON has it."""
    tasks = tuple(options["task"] or ())
    with console.reading() as (cursor, schema, now):
        counts = job_list.count_states(cursor, Criteria(tasks=tasks), schema=schema, most=CAP)
        oldest = job_list.oldest_ready(cursor, schema=schema, tasks=tasks)
        earliest = {State.READY: oldest and oldest.run_at}
        earliest |= {
            state: job_list.earliest(cursor, state, schema=schema, tasks=tasks)
            for state in STATES
            if state not in earliest
        }
        pauses = control.active_pauses(cursor, schema=schema)
        if pauses:
            # A job that is paused does not wait for a worker.
            oldest = oldest_unpaused(cursor, pauses, schema=schema, tasks=tasks)
        unserved = unserved_tasks(cursor, schema=schema, timeout=console.settings.worker_timeout)
        found = holders(cursor, schema=schema)
        gauges = read_gauges(cursor, schema=schema, timeout=console.settings.worker_timeout)
        if tasks:
            gauges = gauges._replace(tasks=[task for task in gauges.tasks if task.identifier in tasks])
        recent = _read_recent(cursor, schema, tasks, since=aware(now) - timedelta(minutes=RECENT))
        problems = [*_problems_of_server(cursor, schema), *_problems_of_workers(found, options)]
    live = [holder for holder in found if worker_state(holder) in ("alive", "stopping")]
    states = Counter(map(worker_state, found))
    status = {
        "now": now,
        "oldest_ready_seconds": max(0.0, (aware(now) - aware(oldest.run_at)).total_seconds()) if oldest else 0.0,
        "oldest_ready_job": oldest and oldest._asdict(),
        "backlog_seconds": gauges.backlog_seconds,
        "backlog_seconds_per_slot": gauges.backlog_seconds_per_slot,
        "jobs": {
            state.value: {
                "count": counts[state].number,
                "is_capped": counts[state].is_more,
                "earliest": earliest[state],
            }
            for state in STATES
        },
        "recent": {"minutes": RECENT, **recent},
        "workers": {
            **{state: states[state] for state in ("alive", "stopping", "silent", "unregistered")},
            "listening": sum(holder.metadata.get("is_listening") is True for holder in live),
            "versions": versions_of(found, console.settings.worker_timeout),
            # The timeout of each worker applies to it.
            "timeouts": sorted({each.timeout_seconds for each in live if each.timeout_seconds is not None}),
        },
        "paused": [pause_as_dict(each) for each in pauses],
        "tasks_without_worker": [task._asdict() for task in unserved if not tasks or task.identifier in tasks],
    }
    problems += _problems_of_jobs(status, options)
    return status | {"healthy": not problems, "problems": problems}


def _read_recent(cursor: Cursor, schema: str, tasks: Sequence[str], *, since: datetime) -> dict[str, int]:
    rows = [
        row
        for kind, name in [(TASK, task) for task in tasks] or [(ALL, "")]
        for row in statistics.read(cursor, kind, name, schema=schema, period=MINUTE, since=since).rows
    ]
    return {
        "succeeded": sum(row.succeeded for row in rows),
        "failed": sum(row.failures for row in rows),
        "expired": sum(row.expired for row in rows),
    }


def _problems_of_server(cursor: Cursor, schema: str) -> list[str]:
    """Return the problems of the schema and of the server, one phrase for each."""
    problems = []
    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        problems.append(f"the schema: {str(error).rstrip('.')}")
    else:
        names = ", ".join(sorted({function.name for function in foreign_functions(cursor, schema=schema)}))
        if names:
            way_out = "manage.py graphile_worker repair restores the functions of this package"
            problems.append(f"the schema: {names} of another program ({way_out})")
    usage = overview.notify_queue_usage(cursor)
    if usage > FULL_NOTIFY_QUEUE:
        problems.append(f"the server's NOTIFY queue is {usage:.0%} full (a session listens in a long transaction)")
    return problems


def _problems_of_workers(found: Sequence[Holder], options: Options) -> list[str]:
    problems, wanted = [], options["min_workers"]
    alive = sum(worker_state(holder) == "alive" for holder in found)
    if alive < wanted:
        problems.append(f"{counted(alive, 'worker')} alive instead of {wanted}")
    holding = [each for each in found if worker_state(each) == "silent" and (each.jobs or each.queues)]
    if holding:
        holds = "holds" if len(holding) == 1 else "hold"
        problems.append(f"{counted(len(holding), 'silent worker')} {holds} jobs (sweep recovers them)")
    return problems


def _problems_of_jobs(status: dict[str, Any], options: Options) -> list[str]:
    problems, job, waited = [], status["oldest_ready_job"], status["oldest_ready_seconds"]
    if job is not None and waited > options["max_age"].total_seconds():
        unserved = {task["identifier"] for task in status["tasks_without_worker"]}
        why = " (no live worker has this task)" if job["task_identifier"] in unserved else ""
        problems.append(
            f"{job['task_identifier']} #{job['id']} has been ready for {in_largest_unit(waited)}{why}, longer than "
            f"{format_time_phrase(options['max_age'])}"
        )
    failed, allowed = status["jobs"]["failed"], options["max_failed"]
    if allowed is not None and failed["count"] > allowed:
        number = f"{failed['count']}{'+' if failed['is_capped'] else ''}"
        problems.append(f"{number} permanently failed {'job' if number == '1' else 'jobs'}, more than {allowed}")
    return problems


# The runs of `tasks` are those of this many hours.
HOURS = 1


TASKS: Columns = (
    *("task_identifier", "live_workers", "ready", "oldest_ready_seconds", "retrying", "failed"),
    *("succeeded", "failures", "mean_seconds"),
)


class Tasks(Verb):
    name = "tasks"
    summary = "List tasks, with their waiting jobs, their workers and their recent runs."
    description = (
        "List the tasks of this project and the tasks that jobs wait for. WORKERS is the number of live workers that "
        f"have the task. The runs are those of the last hour. Count up to {MAX_COUNTED} jobs for each task."
    )
    examples = ("", "--json")

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            ages = overview.backlog_ages(cursor, schema=schema)
            backlogs = overview.task_backlogs(cursor, ages, schema=schema)
            found = holders(cursor, schema=schema)
            since = aware(now) - timedelta(hours=HOURS)
            rows = statistics.read_totals(cursor, schema=schema, period=TEN_MINUTES, since=since)
        tasks = _tasks_as_dicts(backlogs, found, rows)
        console.listing(tasks, TASKS, now, nothing="No tasks. Write functions with @task in an app's tasks.py.")


def _tasks_as_dicts(
    backlogs: Iterable[TaskBacklog], found: Iterable[Holder], rows: Iterable[statistics.Row]
) -> list[dict[str, Any]]:
    known = {backlog.task_identifier: backlog for backlog in backlogs}
    busy = {name for name, each in known.items() if each.ready or each.retrying or each.failed}
    runs: dict[str, list[statistics.Row]] = {}
    for row in rows:
        runs.setdefault(row.name, []).append(row)
    served = [holder.tasks for holder in found if worker_state(holder) == "alive"]
    tasks = []
    for name in sorted({*registry.tasks.identifiers(), *busy, *runs}):
        backlog, own = known.get(name) or TaskBacklog(name, 0, None, 0, 0), runs.get(name, [])
        succeeded, failures = sum(row.succeeded for row in own), sum(row.failures for row in own)
        number = succeeded + failures
        tasks.append(
            {
                "task_identifier": name,
                "is_in_this_project": name in registry.tasks,
                "live_workers": sum(name in tasks_of_worker for tasks_of_worker in served),
                "ready": min(backlog.ready, MAX_COUNTED),
                "oldest_ready_seconds": backlog.oldest_seconds,
                "retrying": min(backlog.retrying, MAX_COUNTED),
                "failed": min(backlog.failed, MAX_COUNTED),
                "counted_up_to": MAX_COUNTED,
                "hours": HOURS,
                "succeeded": succeeded,
                "failures": failures,
                "mean_seconds": sum(row.run_seconds for row in own) / number if number else None,
            }
        )
    return tasks


SEVERITIES = {1: "info", 2: "warning", 3: "error"}
KIND: Any = {"action": "append", "choices": [*GROUPS, *KINDS]}
EVENTS: Columns = (("TIME", lambda event: absolute(event["last_at"])), "severity", "kind", "text")


class Events(Verb):
    name = "events"
    summary = "List what happened to workers, schedules and pauses, the latest first."
    description = (
        "Events are also those of limits, locks and the database: for example, which workers were lost during the "
        "night, and what became of their jobs. They are kept for as long as the setting EVENTS_RETENTION says."
    )
    examples = ("", "--problems --since 1d", "--kind worker_lost --json")
    arguments = (
        Argument("--kind", "KIND", f"List only these events: {', '.join(GROUPS)}, or one kind.", **KIND),
        Argument("--problems", "", "List only warnings and errors."),
        Argument("--worker", "WORKER", "List only events of this worker id or host."),
        Argument("--since", "PERIOD", "List only this period, like 1d.", period),
        limit_of("events"),
    )

    def run(self, console: Console, options: Options) -> None:
        limit = options["limit"]
        with console.reading() as (cursor, schema, now):
            criteria = _event_criteria(options, now)
            found = events.find_events(cursor, criteria, schema=schema, limit=limit + 1)
        with translation.override(None):
            events_found = map(_event_as_dict, found)
            console.listing(events_found, EVENTS, now, nothing="No events.", limit=limit, noun="events")


def _event_criteria(options: Options, now: datetime) -> EventCriteria:
    named = options["kind"]
    kinds = None if named is None else [kind for name in named for kind in GROUPS.get(name, ("", (name,)))[1]]
    return EventCriteria(
        kinds=kinds,
        severity=WARNING if options["problems"] else 1,
        worker=options["worker"],
        since=aware(now) - options["since"] if options["since"] else None,
    )


def _event_text(event: LoggedEvent) -> str:
    style = Style(duration=readable_duration, moment=absolute)
    return " ".join(map(str, describe(event, style)))


def _event_as_dict(event: LoggedEvent) -> dict[str, Any]:
    names = ("id", "kind", "subject", "worker_id", "first_at", "last_at", "number", "details")
    return {
        **{name: getattr(event, name) for name in names},
        "severity": SEVERITIES.get(event.severity, str(event.severity)),
        "text": _event_text(event),
        "dismissed_at": event.dismissed_at,
        "dismissed_by": event.dismissed_by,
    }
