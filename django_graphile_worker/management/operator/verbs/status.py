"""``status``: show the queue on one screen, and check it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator import arguments, pause_targets, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import capped
from django_graphile_worker.management.operator.known_names import is_known, require_task
from django_graphile_worker.management.operator.queue_status import CAP, RECENT, QueueStatus, find_problems, read_status
from django_graphile_worker.management.operator.tables import Cell
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.text import in_largest_unit

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
                raise CommandError("--watch: expected output as text, got --check or --json as well.")
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
            raise CommandError(f"Expected a healthy queue, got: {'; '.join(problems)}.")


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
        ("scheduled", f"{scheduled}{f', the next {times.both(following, status.now)}' if following else ''}"),
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
        text = pause_targets.sentence(pause, status.now)
        pairs.append(("" if number else "paused", Cell(text, style.WARNING)))
    if status.unserved:
        pairs.append(("unserved tasks", Cell(_unserved(status), style.WARNING)))
    return tables.facts(pairs)


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
        "paused": [pause_targets.as_dict(pause) for pause in status.pauses],
        "tasks_without_worker": [task._asdict() for task in status.unserved],
    }
