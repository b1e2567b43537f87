"""The queue on one screen: ``status``, also as a health check."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.crontab.time_phrases import format_time_phrase
from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.tables import Cell
from django_graphile_worker.management.operator.verb import Options, Verb, is_known
from django_graphile_worker.management.operator.verbs.status_figures import CAP, RECENT, Status, read_status
from django_graphile_worker.sql.inspection.counts import Count
from django_graphile_worker.sql.inspection.criteria import State

# Above this share of the NOTIFY queue something is wrong: it is mostly empty.
FULL_NOTIFY_QUEUE = 0.1
DEFAULT_AGE = timedelta(minutes=5)
DEFAULT_WATCH = 2.0
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"

pause = time.sleep


class ShowStatus(Verb):
    name = "status"
    aliases = ("stats",)
    summary = "Show the queue on one screen; with --check, tell by the exit code whether it is well."
    description = (
        f"Counts jobs by state (up to {CAP:,} each), the runs of the last {RECENT} minutes, and workers. With --check "
        "it fails, and names the job, when fewer workers are alive than --min-workers, when a job has been ready for "
        "longer than --max-age, when more jobs than --max-failed have failed for good, when a silent worker still "
        "holds jobs, when the server's NOTIFY queue fills up, or when another program has changed the schema so that "
        "this one cannot work on it. "
        "This is about the whole queue: whether one worker process lives, runworker --health-file tells."
    )
    examples = ("", "--watch", "--check --max-age 15m --max-failed 100 --min-workers 2", "--check --task billing:send")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="Exit with 1 when the queue is not well.")
        parser.add_argument(
            "--task",
            action="append",
            metavar="TASK",
            help="Look only at jobs of this task identifier; may be given several times.",
        )
        parser.add_argument(
            "--max-age",
            type=arguments.period,
            default=DEFAULT_AGE,
            metavar="PERIOD",
            help="With --check: how long a ready job may wait (default: 5m).",
        )
        parser.add_argument(
            "--min-workers",
            type=arguments.not_negative,
            default=1,
            metavar="N",
            help="With --check: how many workers must be alive (default: 1).",
        )
        parser.add_argument(
            "--max-failed",
            type=arguments.not_negative,
            metavar="N",
            help="With --check: how many jobs may have failed for good (default: any number).",
        )
        parser.add_argument(
            "--watch",
            nargs="?",
            type=arguments.seconds,
            const=DEFAULT_WATCH,
            metavar="SECONDS",
            help=f"Show it again and again, until Ctrl-C (default: every {DEFAULT_WATCH:g} seconds).",
        )

    def run(self, desk: Console, options: Options) -> None:
        tasks = tuple(options["task"] or ())
        if options["watch"] is not None:
            if options["check"] or desk.is_json:
                raise CommandError("--watch: expected a screen to look at, got --check or --json as well.")
            _watch(desk, tasks, options["watch"])
            return
        _warn_of_unknown(desk, tasks)
        status = read_status(desk, tasks)
        problems = find_problems(status, options)
        if desk.is_json:
            desk.dump(_as_dict(status, problems))
        else:
            desk.say(_as_text(desk, status))
        if options["check"] and problems:
            raise CommandError(f"Expected a healthy queue, got: {'; '.join(problems)}.")


def _warn_of_unknown(desk: Console, tasks: Sequence[str]) -> None:
    if tasks:
        with desk.reading() as (cursor, schema, _):
            for task in tasks:
                is_known(cursor, desk, "task", task, schema=schema)


def _watch(desk: Console, tasks: tuple[str, ...], seconds: float) -> None:
    try:
        while True:
            text = _as_text(desk, read_status(desk, tasks))
            desk.say(f"{CLEAR_SCREEN}{text}" if desk.out.isatty() else f"{text}\n")
            desk.out.flush()
            pause(seconds)
    except KeyboardInterrupt:
        desk.say("")


def find_problems(status: Status, options: Options) -> list[str]:
    """What is wrong, in words."""
    problems = [] if status.schema_problem is None else [f"the schema: {status.schema_problem.rstrip('.')}"]
    alive, wanted = len(status.workers("alive")), options["min_workers"]
    if alive < wanted:
        problems.append(f"{counted(alive, 'worker')} alive instead of {wanted}")
    if status.waiting_seconds > options["max_age"].total_seconds():
        problems.append(f"{_oldest(status)}, longer than {format_time_phrase(options['max_age'])}")
    failed, allowed_failures = status.counts[State.FAILED].number, options["max_failed"]
    if allowed_failures is not None and failed > allowed_failures:
        noun = "permanently failed job" if failed == 1 else "permanently failed jobs"
        problems.append(f"{_shown(status.counts[State.FAILED])} {noun}, more than {allowed_failures}")
    holding = [holder for holder in status.workers("silent") if holder.jobs or holder.queues]
    if holding:
        holds = "holds" if len(holding) == 1 else "hold"
        problems.append(f"{counted(len(holding), 'silent worker')} {holds} jobs (sweep takes them back)")
    if status.notify_queue_usage > FULL_NOTIFY_QUEUE:
        share = f"{status.notify_queue_usage:.0%}"
        problems.append(f"the server's NOTIFY queue is {share} full (a session listens in a long transaction)")
    return problems


def _oldest(status: Status) -> str:
    job = status.oldest_ready
    assert job is not None
    why = " (no live worker has this task)" if job.task_identifier in {name for name, _ in status.unserved} else ""
    return f"{job.task_identifier} #{job.id} has been ready for {times.span(status.waiting_seconds)}{why}"


def _shown(count: Count) -> str:
    return f"{count.number}{'+' if count.is_more else ''}"


def _as_text(desk: Console, status: Status) -> str:
    style, found = desk.style, status.counts
    alive, silent = len(status.workers("alive")), len(status.workers("silent"))
    ready, scheduled, running, retrying, failed = (_shown(found[state]) for state in _ORDER)
    oldest = f", the oldest for {times.span(status.waiting_seconds)}" if found[State.READY].number else ""
    following = status.earliest[State.SCHEDULED]
    pairs: list[tuple[str, Cell | str]] = [
        ("ready", f"{ready}{oldest}"),
        ("scheduled", f"{scheduled}{f', the next {times.both(following, status.now)}' if following else ''}"),
        ("running", f"{running} held by workers; {status.running} say they run"),
        ("retrying", Cell(retrying, style.WARNING if found[State.RETRYING].number else None)),
        ("permanently failed", Cell(failed, style.ERROR if found[State.FAILED].number else None)),
        ("last 5 minutes", _throughput(status)),
        ("workers alive", Cell(str(alive), style.SUCCESS if alive else style.ERROR)),
        ("workers listening", str(status.listeners)),
        ("workers stopping", str(len(status.workers("stopping")))),
        ("workers silent", Cell(str(silent), style.ERROR if silent else None)),
        ("other holders", str(len(status.workers("unregistered")))),
    ]
    if status.schema_problem is not None:
        pairs.insert(0, ("schema", Cell(status.schema_problem, style.ERROR)))
    if len(status.timeouts) > 1:
        # Each is judged by its own. Mostly somebody has forgotten some of them.
        pairs.append(("worker timeouts", Cell(", ".join(f"{each:g} s" for each in status.timeouts), style.WARNING)))
    if status.unserved:
        pairs.append(("no worker has", Cell(_unserved(status), style.WARNING)))
    return tables.facts(pairs)


def _throughput(status: Status) -> str:
    each_minute = status.succeeded / RECENT
    failed = f", {status.failed} failed" if status.failed else ""
    return f"{status.succeeded} succeeded ({each_minute:.0f} a minute){failed}"


def _unserved(status: Status) -> str:
    return ", ".join(f"{task.identifier} (#{task.job_id} waits for it)" for task in status.unserved)


_ORDER = (State.READY, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)


def _as_dict(status: Status, problems: Sequence[str]) -> dict[str, Any]:
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
        "recent": {"minutes": RECENT, "succeeded": status.succeeded, "failed": status.failed},
        "workers": {
            **{state: len(status.workers(state)) for state in ("alive", "stopping", "silent", "unregistered")},
            "listening": status.listeners,
            "timeouts": status.timeouts,
        },
        "tasks_without_worker": [task._asdict() for task in status.unserved],
    }
