"""``status`` and ``tasks``: the queue on one screen, and what waits for which task."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker import registry
from django_graphile_worker.crontab.times import format_time_phrase
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.management.operator import formatting, verb
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Row, Value, capped, counted
from django_graphile_worker.management.operator.jobs import is_known
from django_graphile_worker.management.operator.queues import pause_as_dict, pause_sentence
from django_graphile_worker.management.operator.verb import Options, Verb, did_you_mean
from django_graphile_worker.management.operator.workers import running_jobs, tasks_of, worker_state
from django_graphile_worker.sql import control, statistics
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.inspection import job_list, known_names, overview
from django_graphile_worker.sql.inspection.job_list import STATES, Count, Criteria, OldestReady, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.inspection.overview import (
    MAX_COUNTED,
    TaskBacklog,
    UnservedTask,
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
# The NOTIFY queue is normally almost empty: if a larger share is full, some session does not read it.
FULL_NOTIFY_QUEUE = 0.1

DEFAULT_AGE = timedelta(minutes=5)
DEFAULT_WATCH = 2.0
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
        "up, if another program has changed the schema so that this package cannot use it, or if neither a job nor a "
        "worker nor this project has the task that --task names. "
        "This checks the whole queue; to check a single worker process, use runworker --health-file."
    )
    examples = ("", "--watch", "--check --max-age 15m --max-failed 100 --min-workers 2", "--check --task billing:send")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="Exit with 1 if the queue is not healthy.")
        parser.add_argument(
            "--task",
            action="append",
            metavar="TASK",
            help="Count only jobs of this task identifier; may be given several times.",
        )
        parser.add_argument(
            "--max-age",
            type=verb.period,
            default=DEFAULT_AGE,
            metavar="PERIOD",
            help="With --check: accept a ready job that has waited for at most PERIOD (default: 5m).",
        )
        parser.add_argument(
            "--min-workers",
            type=verb.not_negative,
            default=1,
            metavar="N",
            help="With --check: expect at least N live workers (default: 1).",
        )
        parser.add_argument(
            "--max-failed",
            type=verb.not_negative,
            metavar="N",
            help="With --check: accept at most N permanently failed jobs (default: any number).",
        )
        parser.add_argument(
            "--watch",
            nargs="?",
            type=verb.seconds,
            const=DEFAULT_WATCH,
            metavar="SECONDS",
            help=f"Repeat the output every SECONDS until Ctrl-C (default: {DEFAULT_WATCH:g}).",
        )

    def run(self, console: Console, options: Options) -> None:
        tasks = tuple(options["task"] or ())
        if options["watch"] is not None:
            if options["check"] or console.is_json:
                raise CommandError("--watch cannot be used with --check or --json.")
            _watch(console, tasks, options["watch"])
            return
        _look_up(console, tasks, must_exist=options["check"])
        status = read_status(console, tasks)
        problems = find_problems(status, options)
        if console.is_json:
            console.dump(_as_dict(status, problems))
        else:
            console.say(_as_text(console, status))
        if options["check"] and problems:
            raise CommandError(f"The queue is unhealthy: {'; '.join(problems)}.")


def _look_up(console: Console, tasks: Sequence[str], *, must_exist: bool) -> None:
    """Warn of tasks that no job has had; with ``must_exist``, raise for names that no job, worker or project has."""
    if tasks:
        with console.reading() as (cursor, schema, _):
            for task in tasks:
                if must_exist:
                    _require_task(cursor, task, schema=schema)
                is_known(cursor, console, "task", task, schema=schema)


def _require_task(cursor: Cursor, name: str, *, schema: str) -> None:
    """Raise CommandError for the name of a task that neither a job nor a worker nor this project has.

    A health check with a mistyped name would find no job, and always report a healthy queue.
    """
    if name in registry.tasks or known_names.meaning(cursor, name, schema=schema)[0]:
        return
    of_workers = {task for holder in holders(cursor, schema=schema) for task in tasks_of(holder)}
    if name not in of_workers:
        known = {*registry.tasks.identifiers(), *of_workers, *known_names.known_tasks(cursor, schema=schema)}
        raise CommandError(
            f"--task: neither a job nor a worker nor this project has a task {name!r}.{did_you_mean(name, known)}"
        )


def _watch(console: Console, tasks: tuple[str, ...], seconds: float) -> None:
    try:
        while True:
            text = _as_text(console, read_status(console, tasks))
            console.say(f"{CLEAR_SCREEN}{text}" if console.out.isatty() else f"{text}\n")
            console.out.flush()
            pause(seconds)
    except KeyboardInterrupt:
        console.say("")


def _as_text(console: Console, status: QueueStatus) -> str:
    style, found = console.style, status.counts
    number = {state: f"{count.number}{'+' if count.is_more else ''}" for state, count in found.items()}
    alive, silent = len(status.workers("alive")), len(status.workers("silent"))
    oldest = f", the oldest for {in_largest_unit(status.waiting_seconds)}" if status.oldest_ready else ""
    following = status.earliest[State.SCHEDULED]
    limited = f"{number[State.LIMITED]} due; they wait for a limit or for their turn: see graphile_worker limits"
    pairs: list[tuple[str, Value]] = [
        *([("schema", Cell(status.schema_problem, style.ERROR))] if status.schema_problem is not None else []),
        ("ready", f"{number[State.READY]}{oldest}"),
        *([("limited", limited)] if found[State.LIMITED].number else []),
        (
            "scheduled",
            number[State.SCHEDULED] + (f", the next {formatting.both(following, status.now)}" if following else ""),
        ),
        ("running", f"{number[State.RUNNING]} held by workers; {status.running} reported as running"),
        ("retrying", Cell(number[State.RETRYING], style.WARNING if found[State.RETRYING].number else None)),
        ("permanently failed", Cell(number[State.FAILED], style.ERROR if found[State.FAILED].number else None)),
        ("last 5 minutes", _throughput(status)),
        ("workers alive", Cell(str(alive), style.SUCCESS if alive else style.ERROR)),
        ("workers listening", status.listeners),
        ("workers stopping", len(status.workers("stopping"))),
        ("workers silent", Cell(str(silent), style.ERROR if silent else None)),
        ("other workers", len(status.workers("unregistered"))),
    ]
    if len(status.timeouts) > 1:
        # The timeout of each worker applies to it. Usually, some workers were not restarted after a change of settings.
        pairs.append(("worker timeouts", Cell(", ".join(f"{each:g} s" for each in status.timeouts), style.WARNING)))
    for place, pause in enumerate(status.pauses):
        pairs.append(("" if place else "paused", Cell(pause_sentence(pause, status.now), style.WARNING)))
    if status.unserved:
        unserved = ", ".join(f"{task.identifier} (#{task.job_id} waits for it)" for task in status.unserved)
        pairs.append(("unserved tasks", Cell(unserved, style.WARNING)))
    return formatting.facts(pairs)


def _throughput(status: QueueStatus) -> str:
    recent = status.recent
    failed = f", {recent['failed']} failed" if recent["failed"] else ""
    expired = f", {recent['expired']} expired" if recent["expired"] else ""
    return f"{recent['succeeded']} succeeded ({recent['succeeded'] / RECENT:.0f} a minute){failed}{expired}"


def _as_dict(status: QueueStatus, problems: Sequence[str]) -> dict[str, Any]:
    return {
        "now": status.now,
        "healthy": not problems,
        "problems": list(problems),
        "oldest_ready_seconds": status.waiting_seconds,
        "oldest_ready_job": status.oldest_ready and status.oldest_ready._asdict(),
        "jobs": {
            state.value: {
                "count": status.counts[state].number,
                "is_capped": status.counts[state].is_more,
                "earliest": status.earliest[state],
            }
            for state in STATES
        },
        "recent": {"minutes": RECENT, **status.recent},
        "workers": {
            **{state: len(status.workers(state)) for state in ("alive", "stopping", "silent", "unregistered")},
            "listening": status.listeners,
            "timeouts": status.timeouts,
        },
        "paused": [pause_as_dict(pause) for pause in status.pauses],
        "tasks_without_worker": [task._asdict() for task in status.unserved],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The queue at one moment."""

    now: datetime
    counts: dict[State, Count]
    earliest: dict[State, datetime | None]
    # Of the jobs that are not paused.
    oldest_ready: OldestReady | None
    holders: Sequence[Holder]
    unserved: Sequence[UnservedTask]
    # How many jobs succeeded, failed (permanently or not) and expired in the last minutes.
    recent: dict[str, int]
    # The problem of the schema, None if there is none.
    schema_problem: str | None
    # How full the server's queue of notifications is, from 0 to 1.
    notify_queue_usage: float
    pauses: Sequence[Pause]

    @property
    def waiting_seconds(self) -> float:
        """How long the oldest ready job that is not paused has been due."""
        if self.oldest_ready is None:
            return 0.0
        return max(0.0, (formatting.aware(self.now) - formatting.aware(self.oldest_ready.run_at)).total_seconds())

    def workers(self, *states: str) -> list[Holder]:
        return [holder for holder in self.holders if worker_state(holder) in states]

    @property
    def timeouts(self) -> list[float]:
        """The different timeouts of live workers, shortest first."""
        timeouts = (holder.timeout_seconds for holder in self.workers("alive", "stopping"))
        return sorted({seconds for seconds in timeouts if seconds is not None})

    @property
    def listeners(self) -> int:
        return sum(holder.metadata.get("is_listening") is True for holder in self.workers("alive", "stopping"))

    @property
    def running(self) -> int:
        return sum(len(running_jobs(holder)) for holder in self.workers("alive", "stopping"))


def read_status(console: Console, tasks: tuple[str, ...] = ()) -> QueueStatus:
    """Read the state of the queue, or only of the jobs of these tasks."""
    with console.reading() as (cursor, schema, now):
        oldest = job_list.oldest_ready(cursor, schema=schema, tasks=tasks)
        paused = control.active_pauses(cursor, schema=schema)
        others = [state for state in STATES if state is not State.READY]
        unserved = unserved_tasks(cursor, schema=schema, timeout=console.settings.worker_timeout)
        return QueueStatus(
            now=now,
            counts=job_list.count_states(cursor, Criteria(tasks=tasks), schema=schema, most=CAP),
            earliest={
                State.READY: oldest and oldest.run_at,
                **{state: job_list.earliest(cursor, state, schema=schema, tasks=tasks) for state in others},
            },
            # A job that is paused does not wait for a worker.
            oldest_ready=oldest_unpaused(cursor, paused, schema=schema, tasks=tasks) if paused else oldest,
            holders=holders(cursor, schema=schema),
            unserved=[task for task in unserved if not tasks or task.identifier in tasks],
            recent=_read_recent(cursor, schema, tasks, since=formatting.aware(now) - timedelta(minutes=RECENT)),
            schema_problem=_schema_problem(cursor, schema),
            notify_queue_usage=overview.notify_queue_usage(cursor),
            pauses=paused,
        )


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


def _schema_problem(cursor: Cursor, schema: str) -> str | None:
    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        return str(error)
    replaced = sorted({function.name for function in foreign_functions(cursor, schema=schema)})
    if replaced:
        names = ", ".join(replaced)
        return f"{names} of another program (manage.py graphile_worker repair restores the functions of this package)"
    return None


def find_problems(status: QueueStatus, options: Options) -> list[str]:
    """Return the problems of the queue, one phrase for each."""
    problems = [] if status.schema_problem is None else [f"the schema: {status.schema_problem.rstrip('.')}"]
    alive, wanted = len(status.workers("alive")), options["min_workers"]
    if alive < wanted:
        problems.append(f"{counted(alive, 'worker')} alive instead of {wanted}")
    job = status.oldest_ready
    if job is not None and status.waiting_seconds > options["max_age"].total_seconds():
        is_unserved = job.task_identifier in {task.identifier for task in status.unserved}
        why = " (no live worker has this task)" if is_unserved else ""
        since = f"has been ready for {in_largest_unit(status.waiting_seconds)}{why}"
        problems.append(
            f"{job.task_identifier} #{job.id} {since}, longer than {format_time_phrase(options['max_age'])}"
        )
    failed, allowed = status.counts[State.FAILED], options["max_failed"]
    if allowed is not None and failed.number > allowed:
        more = "+" if failed.is_more else ""
        noun = "job" if failed.number == 1 else "jobs"
        problems.append(f"{failed.number}{more} permanently failed {noun}, more than {allowed}")
    holding = [holder for holder in status.workers("silent") if holder.jobs or holder.queues]
    if holding:
        holds = "holds" if len(holding) == 1 else "hold"
        problems.append(f"{counted(len(holding), 'silent worker')} {holds} jobs (sweep recovers them)")
    if status.notify_queue_usage > FULL_NOTIFY_QUEUE:
        share = f"{status.notify_queue_usage:.0%}"
        problems.append(f"the server's NOTIFY queue is {share} full (a session listens in a long transaction)")
    return problems


# The runs of `tasks` are those of this many hours.
HOURS = 1


class TaskFacts(NamedTuple):
    """A task: its waiting jobs, its workers, and its recent runs."""

    identifier: str
    backlog: TaskBacklog
    workers: int
    succeeded: int
    failed: int
    mean_seconds: float | None


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
            since = formatting.aware(now) - timedelta(hours=HOURS)
            rows = statistics.read_totals(cursor, schema=schema, period=TEN_MINUTES, since=since)
        nothing = "No tasks. Write functions with @task in an app's tasks.py."
        tasks = _task_facts(backlogs, found, rows)
        console.listing(tasks, _task_as_dict, lambda task: _task_row(task, console.style), nothing=nothing)


def _task_facts(
    backlogs: Iterable[TaskBacklog], found: Iterable[Holder], rows: Iterable[statistics.Row]
) -> list[TaskFacts]:
    known = {backlog.task_identifier: backlog for backlog in backlogs}
    busy = {name for name, each in known.items() if each.ready or each.retrying or each.failed}
    by_task: dict[str, list[statistics.Row]] = {}
    for row in rows:
        by_task.setdefault(row.name, []).append(row)
    served = [tasks_of(holder) for holder in found if worker_state(holder) == "alive"]
    facts = []
    for name in sorted({*registry.tasks.identifiers(), *busy, *by_task}):
        own = by_task.get(name, [])
        succeeded, failed = sum(row.succeeded for row in own), sum(row.failures for row in own)
        seconds = sum(row.run_seconds for row in own)
        facts.append(
            TaskFacts(
                identifier=name,
                backlog=known.get(name) or TaskBacklog(name, 0, None, 0, 0),
                workers=sum(name in tasks for tasks in served),
                succeeded=succeeded,
                failed=failed,
                mean_seconds=seconds / (succeeded + failed) if succeeded + failed else None,
            )
        )
    return facts


def _task_row(task: TaskFacts, style: Style) -> Row:
    backlog = task.backlog
    is_missed = bool(backlog.ready + backlog.retrying) and not task.workers
    return {
        "TASK": task.identifier,
        "WORKERS": Cell(str(task.workers), style.ERROR if is_missed else None),
        "READY": capped(backlog.ready, MAX_COUNTED),
        "OLDEST": "" if backlog.oldest_seconds is None else in_largest_unit(backlog.oldest_seconds),
        "RETRYING": Cell(capped(backlog.retrying, MAX_COUNTED), style.WARNING) if backlog.retrying else "",
        "FAILED": Cell(capped(backlog.failed, MAX_COUNTED), style.ERROR) if backlog.failed else "",
        "RUNS/H": task.succeeded + task.failed,
        "FAILURES": task.failed or "",
        "MEAN": "" if task.mean_seconds is None else readable_duration(task.mean_seconds),
    }


def _task_as_dict(task: TaskFacts) -> dict[str, Any]:
    backlog = task.backlog
    return {
        "task_identifier": task.identifier,
        "is_in_this_project": task.identifier in registry.tasks,
        "live_workers": task.workers,
        "ready": min(backlog.ready, MAX_COUNTED),
        "oldest_ready_seconds": backlog.oldest_seconds,
        "retrying": min(backlog.retrying, MAX_COUNTED),
        "failed": min(backlog.failed, MAX_COUNTED),
        "counted_up_to": MAX_COUNTED,
        "hours": HOURS,
        "succeeded": task.succeeded,
        "failures": task.failed,
        "mean_seconds": task.mean_seconds,
    }
