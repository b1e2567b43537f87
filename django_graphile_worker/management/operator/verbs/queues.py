"""``queues``: list queues."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator import arguments, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection import queue_depths
from django_graphile_worker.sql.inspection.queue_depths import QueueDepth

DEFAULT_LIMIT = 50


class Queues(Verb):
    name = "queues"
    summary = "List queues, the workers that hold them, and how many jobs wait."
    description = (
        "List named queues: those that a worker holds, paused queues, then others. Count waiting jobs, including "
        f"scheduled jobs, up to {queue_depths.MOST_COUNTED:,} for each queue."
    )
    examples = ("", "--queue warehouse", "--held --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", metavar="QUEUE", help="List only this queue.")
        parser.add_argument("--held", action="store_true", help="List only queues that are held or paused.")
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"List at most N queues (default: {DEFAULT_LIMIT}).",
        )

    def run(self, console: Console, options: Options) -> None:
        limit, name = options["limit"], options["queue"]
        with console.reading() as (cursor, schema, now):
            found = queue_depths.held_first(
                cursor,
                limit=limit + 1,
                name=name,
                only_held=options["held"],
                most=queue_depths.MOST_COUNTED,
                schema=schema,
            )
        if console.is_json:
            console.dump([_queue_as_dict(queue) for queue in found[:limit]])
        elif found:
            console.table(_QUEUE_COLUMNS, [_queue_row(queue, now) for queue in found[:limit]])
        else:
            console.note("No queues.")
        if len(found) > limit:
            console.note(f"There are more queues; these are the first {limit}. Use --limit to list more.")


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
        _holder(queue, now),
        _since(queue, now),
    ]


def _holder(queue: QueueDepth, now: datetime) -> str:
    if not queue.is_paused:
        return queue.locked_by or ""
    return "paused" if queue.paused_until is None else f"paused until {times.both(queue.paused_until, now)}"


def _since(queue: QueueDepth, now: datetime) -> str:
    since = queue.paused_at if queue.is_paused else queue.locked_at
    return "-" if since is None else times.relative(since, now)


def _queue_as_dict(queue: QueueDepth) -> dict[str, Any]:
    number, is_capped = _waiting(queue)
    return {
        "queue_name": queue.queue_name,
        "locked_by": None if queue.is_paused else queue.locked_by,
        "locked_at": None if queue.is_paused else queue.locked_at,
        "is_paused": queue.is_paused,
        "paused_until": queue.paused_until,
        "pause_reason": queue.pause_reason,
        "paused_by": queue.paused_by,
        "waiting": number,
        "is_capped": is_capped,
        "earliest_run_at": queue.oldest,
    }


def _waiting(queue: QueueDepth) -> tuple[int, bool]:
    """Return the number of waiting jobs, and whether there are more."""
    return min(queue.number, queue_depths.MOST_COUNTED), queue.number > queue_depths.MOST_COUNTED
