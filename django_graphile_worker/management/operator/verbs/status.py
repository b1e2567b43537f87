"""``status`` and ``events``: the queue on one screen, and what happened lately."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import translation

from django_graphile_worker.crontab.times import format_time_phrase
from django_graphile_worker.event_texts import GROUPS, KINDS, Style, describe
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column, capped, counted
from django_graphile_worker.management.operator.lookups import is_known, require_task, running_jobs, worker_state
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.operator.verbs import queues
from django_graphile_worker.sql import control, events, statistics
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.events import WARNING, EventCriteria, LoggedEvent
from django_graphile_worker.sql.inspection import overview
from django_graphile_worker.sql.inspection.job_search import counts
from django_graphile_worker.sql.inspection.job_search.counts import Count, OldestReady
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.inspection.overview import UnservedTask, oldest_unpaused, unserved_tasks
from django_graphile_worker.sql.install.catalog import refuse_breaking_migration
from django_graphile_worker.sql.install.installer import foreign_functions
from django_graphile_worker.sql.statements import Cursor
from django_graphile_worker.sql.statistics import ALL, MINUTE, TASK, Row
from django_graphile_worker.text import escaped, in_largest_unit, readable_duration

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
    aliases = ("stats",)
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
            type=arguments.period,
            default=DEFAULT_AGE,
            metavar="PERIOD",
            help="With --check: accept a ready job that has waited for at most PERIOD (default: 5m).",
        )
        parser.add_argument(
            "--min-workers",
            type=arguments.not_negative,
            default=1,
            metavar="N",
            help="With --check: expect at least N live workers (default: 1).",
        )
        parser.add_argument(
            "--max-failed",
            type=arguments.not_negative,
            metavar="N",
            help="With --check: accept at most N permanently failed jobs (default: any number).",
        )
        parser.add_argument(
            "--watch",
            nargs="?",
            type=arguments.seconds,
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
                    require_task(cursor, task, schema=schema)
                is_known(cursor, console, "task", task, schema=schema)


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
    alive, silent = len(status.workers("alive")), len(status.workers("silent"))
    ready, limited, scheduled, running, retrying, failed = (capped(found[state]) for state in _ORDER)
    oldest = f", the oldest for {in_largest_unit(status.waiting_seconds)}" if status.oldest_ready else ""
    following = status.earliest[State.SCHEDULED]
    pairs: list[tuple[str, Cell | str]] = [
        ("ready", f"{ready}{oldest}"),
        ("scheduled", f"{scheduled}{f', the next {formatting.both(following, status.now)}' if following else ''}"),
        ("running", f"{running} held by workers; {status.running} reported as running"),
        ("retrying", Cell(retrying, style.WARNING if found[State.RETRYING].number else None)),
        ("permanently failed", Cell(failed, style.ERROR if found[State.FAILED].number else None)),
        ("last 5 minutes", _throughput(status)),
        ("workers alive", Cell(str(alive), style.SUCCESS if alive else style.ERROR)),
        ("workers listening", str(status.listeners)),
        ("workers stopping", str(len(status.workers("stopping")))),
        ("workers silent", Cell(str(silent), style.ERROR if silent else None)),
        ("other workers", str(len(status.workers("unregistered")))),
    ]
    if found[State.LIMITED].number:
        pairs.insert(
            1, ("limited", f"{limited} due; they wait for a limit or for their turn: see graphile_worker limits")
        )
    if status.schema_problem is not None:
        pairs.insert(0, ("schema", Cell(status.schema_problem, style.ERROR)))
    if len(status.timeouts) > 1:
        # The timeout of each worker applies to it. Usually, some workers were not restarted after a change of settings.
        pairs.append(("worker timeouts", Cell(", ".join(f"{each:g} s" for each in status.timeouts), style.WARNING)))
    for number, pause in enumerate(status.pauses):
        text = queues.sentence(pause, status.now)
        pairs.append(("" if number else "paused", Cell(text, style.WARNING)))
    if status.unserved:
        pairs.append(("unserved tasks", Cell(_unserved(status), style.WARNING)))
    return formatting.facts(pairs)


def _throughput(status: QueueStatus) -> str:
    each_minute = status.succeeded / RECENT
    failed = f", {status.failed} failed" if status.failed else ""
    expired = f", {status.expired} expired" if status.expired else ""
    return f"{status.succeeded} succeeded ({each_minute:.0f} a minute){failed}{expired}"


def _unserved(status: QueueStatus) -> str:
    return ", ".join(f"{task.identifier} (#{task.job_id} waits for it)" for task in status.unserved)


_ORDER = (State.READY, State.LIMITED, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)


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
            for state in _ORDER
        },
        "recent": {
            "minutes": RECENT,
            "succeeded": status.succeeded,
            "failed": status.failed,
            "expired": status.expired,
        },
        "workers": {
            **{state: len(status.workers(state)) for state in ("alive", "stopping", "silent", "unregistered")},
            "listening": status.listeners,
            "timeouts": status.timeouts,
        },
        "paused": [queues.as_dict(pause) for pause in status.pauses],
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
    recent: Sequence[Row]
    # The problem of the schema, None if there is none.
    schema_problem: str | None
    # How full the server's queue of notifications is, from 0 to 1.
    notify_queue_usage: float = 0.0
    pauses: Sequence[Pause] = ()

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

    @property
    def succeeded(self) -> int:
        """Runs that succeeded in the last minutes."""
        return sum(row.succeeded for row in self.recent)

    @property
    def failed(self) -> int:
        """Runs that failed in the last minutes, permanently or not."""
        return sum(row.failures for row in self.recent)

    @property
    def expired(self) -> int:
        """Jobs that expired in the last minutes."""
        return sum(row.expired for row in self.recent)


def read_status(console: Console, tasks: tuple[str, ...] = ()) -> QueueStatus:
    """Read the state of the queue, or only of the jobs of these tasks."""
    with console.reading() as (cursor, schema, now):
        oldest = counts.oldest_ready(cursor, schema=schema, tasks=tasks)
        paused = control.active_pauses(cursor, schema=schema)
        others = [state for state in STATES if state is not State.READY]
        since = formatting.aware(now) - timedelta(minutes=RECENT)
        return QueueStatus(
            now=now,
            counts=counts.count_states(cursor, Criteria(tasks=tasks), schema=schema, most=CAP),
            earliest={
                State.READY: oldest and oldest.run_at,
                **{state: counts.earliest(cursor, state, schema=schema, tasks=tasks) for state in others},
            },
            # A job that is paused does not wait for a worker.
            oldest_ready=oldest_unpaused(cursor, paused, schema=schema, tasks=tasks) if paused else oldest,
            holders=holders(cursor, schema=schema),
            unserved=[
                task
                for task in unserved_tasks(cursor, schema=schema, timeout=console.settings.worker_timeout)
                if not tasks or task.identifier in tasks
            ],
            recent=[
                row
                for kind, name in [(TASK, task) for task in tasks] or [(ALL, "")]
                for row in statistics.read(cursor, kind, name, schema=schema, period=MINUTE, since=since).rows
            ],
            schema_problem=_schema_problem(cursor, schema),
            notify_queue_usage=overview.notify_queue_usage(cursor),
            pauses=paused,
        )


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
    if status.waiting_seconds > options["max_age"].total_seconds():
        problems.append(f"{_oldest(status)}, longer than {format_time_phrase(options['max_age'])}")
    failed, allowed_failures = status.counts[State.FAILED].number, options["max_failed"]
    if allowed_failures is not None and failed > allowed_failures:
        noun = "permanently failed job" if failed == 1 else "permanently failed jobs"
        problems.append(f"{capped(status.counts[State.FAILED])} {noun}, more than {allowed_failures}")
    holding = [holder for holder in status.workers("silent") if holder.jobs or holder.queues]
    if holding:
        holds = "holds" if len(holding) == 1 else "hold"
        problems.append(f"{counted(len(holding), 'silent worker')} {holds} jobs (sweep recovers them)")
    if status.notify_queue_usage > FULL_NOTIFY_QUEUE:
        share = f"{status.notify_queue_usage:.0%}"
        problems.append(f"the server's NOTIFY queue is {share} full (a session listens in a long transaction)")
    return problems


def _oldest(status: QueueStatus) -> str:
    job = status.oldest_ready
    assert job is not None
    why = " (no live worker has this task)" if job.task_identifier in {name for name, _ in status.unserved} else ""
    return f"{job.task_identifier} #{job.id} has been ready for {in_largest_unit(status.waiting_seconds)}{why}"


DEFAULT_LIMIT = 50
SEVERITIES = {1: "info", 2: "warning", 3: "error"}
# Seconds between two looks of --follow.
FOLLOW_INTERVAL = 2.0


class Events(Verb):
    name = "events"
    summary = "List what happened to workers, schedules and pauses, the latest first."
    description = (
        "List what happened to workers, schedules, pauses, limits, locks and the database, the latest first: for "
        "example, which workers were lost during the night, and what became of their jobs. Events are kept for as long "
        "as the setting EVENTS_RETENTION says."
    )
    examples = ("", "--problems --since 1d", "--kind worker_lost --json", "--follow")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--kind",
            action="append",
            choices=[*GROUPS, *KINDS],
            metavar="KIND",
            help=f"List only this kind of event, or group of kinds ({', '.join(GROUPS)}); can be repeated.",
        )
        parser.add_argument("--problems", action="store_true", help="List only warnings and errors.")
        parser.add_argument("--worker", metavar="WORKER", help="List only events of this worker id or host.")
        parser.add_argument("--since", type=arguments.period, metavar="PERIOD", help="List only this period, like 1d.")
        arguments.add_limit(parser, "events", default=DEFAULT_LIMIT)
        parser.add_argument(
            "--follow", action="store_true", help="Go on listing new events until Ctrl+C, the latest last."
        )

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            criteria = _criteria(options, now)
            found = events.find_events(cursor, criteria, schema=schema, limit=options["limit"] + 1)
        shown = found[: options["limit"]]
        with translation.override(None):
            if options["follow"]:
                _follow(console, criteria, shown)
            elif console.is_json:
                console.dump([_event_as_dict(event) for event in shown])
            elif shown:
                console.table(_COLUMNS, [_row(event, now) for event in shown])
            else:
                console.note("No events.")
        if len(found) > len(shown):
            console.note(f"There are more events; these are the last {options['limit']}. Use --limit to list more.")


def _criteria(options: Options, now: datetime) -> EventCriteria:
    named = options["kind"]
    kinds = None if named is None else [kind for name in named for kind in GROUPS.get(name, ("", (name,)))[1]]
    return EventCriteria(
        kinds=kinds,
        severity=WARNING if options["problems"] else 1,
        worker=options["worker"],
        since=formatting.aware(now) - options["since"] if options["since"] else None,
    )


def _follow(console: Console, criteria: EventCriteria, shown: Sequence[LoggedEvent]) -> None:
    """Write events as they come, the latest last, until the user interrupts the command."""
    written: dict[int, datetime] = {}
    found = list(shown)
    try:
        while True:
            for event in reversed(found):
                if written.get(event.id) != event.last_at:
                    written[event.id] = event.last_at
                    _write_line(console, event)
            # Events send no notification: the statements that write them must not cost more for a reader.
            time.sleep(FOLLOW_INTERVAL)
            with console.reading() as (cursor, schema, _):
                found = events.find_events(cursor, criteria, schema=schema, limit=DEFAULT_LIMIT)
    except KeyboardInterrupt:
        return


def _write_line(console: Console, event: LoggedEvent) -> None:
    if console.is_json:
        console.dump(_event_as_dict(event))
    else:
        severity = SEVERITIES.get(event.severity, "")
        console.say(escaped(f"{formatting.absolute(event.last_at)} {severity}: {_text(event)}"))


_COLUMNS = (Column("TIME"), Column("SEVERITY"), Column("KIND"), Column("EVENT", gives_way=True))


def _row(event: LoggedEvent, now: datetime) -> list[str]:
    return [formatting.both(event.last_at, now), SEVERITIES.get(event.severity, ""), event.kind, _text(event)]


def _text(event: LoggedEvent) -> str:
    style = Style(duration=readable_duration, moment=formatting.absolute)
    return " ".join(map(str, describe(event, style)))


def _event_as_dict(event: LoggedEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "kind": event.kind,
        "severity": SEVERITIES.get(event.severity, str(event.severity)),
        "subject": event.subject,
        "worker_id": event.worker_id,
        "first_at": event.first_at,
        "last_at": event.last_at,
        "number": event.number,
        "text": _text(event),
        "details": event.details,
        "dismissed_at": event.dismissed_at,
        "dismissed_by": event.dismissed_by,
    }
