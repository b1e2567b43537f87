"""Who works: ``workers`` and ``queues``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.core.management.color import Style

from django_graphile_worker import conf
from django_graphile_worker.management.operator import arguments, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection import queue_depths
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.inspection.queue_depths import QueueDepth

DEFAULT_LIMIT = 50


def has_beaten_lately(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def worker_state(holder: Holder) -> str:
    """How a worker is: unregistered ones do not beat, so nobody can tell."""
    if not holder.is_registered:
        return "unregistered"
    if not has_beaten_lately(holder):
        return "silent"
    return "stopping" if holder.metadata.get("is_stopping") is True else "alive"


def running_jobs(holder: Holder) -> list[dict[str, Any]]:
    running = holder.metadata.get("running")
    return [job for job in running if isinstance(job, dict)] if isinstance(running, list) else []


class Workers(Verb):
    name = "workers"
    summary = "List workers, and who else holds jobs."
    description = (
        "Lists the workers of this package by their heartbeats: alive, stopping, or silent for longer than "
        "WORKER_TIMEOUT (the next sweep takes their jobs back). Holders of jobs that do not register, as Node's "
        "graphile-worker does not, come last."
    )
    examples = ("", "--json")

    def run(self, desk: Console, options: Options) -> None:
        with desk.reading() as (cursor, schema, now):
            found = holders(cursor, schema=schema)
        if desk.is_json:
            desk.dump([_worker_as_dict(holder) for holder in found])
        elif found:
            desk.table(_WORKER_COLUMNS, [_worker_row(holder, now, desk.style) for holder in found])
        else:
            desk.note("No workers. Start one with: manage.py runworker")


_WORKER_COLUMNS = (
    Column("WORKER"),
    Column("STATE"),
    Column("HOST", gives_way=True),
    Column("PID", is_number=True),
    Column("SINCE", gives_way=True),
    Column("LAST BEAT"),
    Column("LISTENS"),
    Column("RUNNING", is_number=True),
    Column("HOLDS JOBS"),
    Column("TASKS RUNNING", gives_way=True),
)


def _worker_row(holder: Holder, now: datetime, style: Style) -> list[Cell | str]:
    about = holder.metadata
    running = running_jobs(holder)
    since = holder.started_at or holder.oldest_lock
    beat = holder.last_heartbeat_at
    return [
        holder.id,
        _state_cell(holder, style),
        str(about.get("host", "")),
        str(about.get("pid", "")),
        times.both(since, now),
        "-" if beat is None else times.relative(beat, now),
        _listens(about.get("is_listening")),
        str(len(running)) if holder.is_registered else "",
        _held(holder),
        ", ".join(sorted({str(job.get("task", "")) for job in running})),
    ]


def _listens(told: object) -> str:
    return "" if told is None else "yes" if told is True else "no"


def _held(holder: Holder) -> str:
    return f"{counted(holder.jobs, 'job')}, {counted(holder.queues, 'queue')}" if holder.queues else str(holder.jobs)


def _state_cell(holder: Holder, style: Style) -> Cell:
    state = worker_state(holder)
    paints = {
        "alive": style.SUCCESS,
        "silent": style.ERROR,
        "stopping": style.WARNING,
        "unregistered": style.MIGRATE_LABEL,
    }
    return Cell(state, paints[state])


def _worker_as_dict(holder: Holder) -> dict[str, Any]:
    return {
        "id": holder.id,
        "state": worker_state(holder),
        "started_at": holder.started_at,
        "last_heartbeat_at": holder.last_heartbeat_at,
        "holds_since": holder.oldest_lock,
        "held_jobs": holder.jobs,
        "held_queues": holder.queues,
        "metadata": holder.metadata,
    }


class Queues(Verb):
    name = "queues"
    summary = "List queues, who holds them, and how many jobs wait."
    description = (
        "Lists named queues, the held ones first. Waiting jobs are counted up to "
        f"{queue_depths.MOST_COUNTED:,} a queue, scheduled ones included."
    )
    examples = ("", "--queue warehouse", "--held --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", metavar="QUEUE", help="Only this queue.")
        parser.add_argument("--held", action="store_true", help="Only queues that a worker holds.")
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"The most queues to list (default: {DEFAULT_LIMIT}).",
        )

    def run(self, desk: Console, options: Options) -> None:
        limit, name = options["limit"], options["queue"]
        with desk.reading() as (cursor, schema, now):
            found = queue_depths.held_first(
                cursor,
                limit=limit + 1,
                name=name,
                only_held=options["held"],
                most=queue_depths.MOST_COUNTED,
                schema=schema,
            )
        if desk.is_json:
            desk.dump([_queue_as_dict(queue) for queue in found[:limit]])
        elif found:
            desk.table(_QUEUE_COLUMNS, [_queue_row(queue, now) for queue in found[:limit]])
        else:
            desk.note("No queues.")
        if len(found) > limit:
            desk.note(f"There are more; these are the first {limit}. --limit shows more.")


_QUEUE_COLUMNS = (
    Column("QUEUE", gives_way=True),
    Column("WAITING", is_number=True),
    Column("FIRST RUN AT", gives_way=True),
    Column("HELD BY"),
    Column("SINCE"),
)


def _queue_row(queue: QueueDepth, now: datetime) -> list[Cell | str]:
    number, is_capped = _waiting(queue)
    return [
        queue.queue_name,
        f"{number}{'+' if is_capped else ''}",
        times.both(queue.oldest, now),
        queue.locked_by or "",
        "-" if queue.locked_at is None else times.relative(queue.locked_at, now),
    ]


def _queue_as_dict(queue: QueueDepth) -> dict[str, Any]:
    number, is_capped = _waiting(queue)
    return {
        "queue_name": queue.queue_name,
        "locked_by": queue.locked_by,
        "locked_at": queue.locked_at,
        "waiting": number,
        "is_capped": is_capped,
        "earliest_run_at": queue.oldest,
    }


def _waiting(queue: QueueDepth) -> tuple[int, bool]:
    """The number of waiting jobs, and whether there are more."""
    return min(queue.number, queue_depths.MOST_COUNTED), queue.number > queue_depths.MOST_COUNTED
