"""``workers``: list workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.color import Style

from django_graphile_worker.management.operator import times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.operator.worker_states import running_jobs, worker_state
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders


class Workers(Verb):
    name = "workers"
    summary = "List workers and their jobs."
    description = (
        "List the workers of this package with their state: alive, stopping, or silent for longer than WORKER_TIMEOUT "
        "(other workers, or sweep, recover their jobs). Workers that hold jobs and do not register, such as those of "
        "graphile-worker for Node.js, come last."
    )
    examples = ("", "--json")

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            found = holders(cursor, schema=schema)
        if console.is_json:
            console.dump([_worker_as_dict(holder) for holder in found])
        elif found:
            console.table(_WORKER_COLUMNS, [_worker_row(holder, now, console.style) for holder in found])
        else:
            console.note("No workers. Start one with: manage.py runworker")


_WORKER_COLUMNS = (
    Column("WORKER"),
    Column("STATE"),
    Column("HOST", gives_way=True),
    Column("PID", is_number=True),
    Column("SINCE", gives_way=True),
    Column("HEARTBEAT"),
    Column("LISTENS"),
    Column("RUNNING", is_number=True),
    Column("HOLDS JOBS"),
    Column("TASKS RUNNING", gives_way=True),
)


def _worker_row(holder: Holder, now: datetime, style: Style) -> list[Cell | str]:
    about = holder.metadata
    running = running_jobs(holder)
    since = holder.started_at or holder.oldest_lock
    heartbeat = holder.last_heartbeat_at
    return [
        holder.id,
        _state_cell(holder, style),
        str(about.get("host", "")),
        str(about.get("pid", "")),
        times.both(since, now),
        "-" if heartbeat is None else times.relative(heartbeat, now),
        _listens(about.get("is_listening")),
        str(len(running)) if holder.is_registered else "",
        _held(holder),
        ", ".join(sorted({str(job.get("task", "")) for job in running})),
    ]


def _listens(is_listening: object) -> str:
    return "" if is_listening is None else "yes" if is_listening is True else "no"


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
