"""``tasks``: list tasks, with their jobs and workers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from django.core.management.color import Style

from django_graphile_worker import registry, text
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.lookups import tasks_of, worker_state
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.inspection import overview
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.inspection.overview import MAX_COUNTED, TaskBacklog
from django_graphile_worker.sql.statistics import TEN_MINUTES, Row

HOURS = 1


class TaskFacts(NamedTuple):
    """A task: its waiting jobs, its workers, and its recent runs."""

    identifier: str
    backlog: TaskBacklog | None
    workers: int
    is_here: bool
    succeeded: int
    failed: int
    seconds: float

    @property
    def mean_seconds(self) -> float | None:
        runs = self.succeeded + self.failed
        return self.seconds / runs if runs else None

    @property
    def waiting(self) -> int:
        backlog = self.backlog
        return 0 if backlog is None else backlog.ready + backlog.retrying


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
        facts = _facts(backlogs, found, rows)
        if console.is_json:
            console.dump([_as_dict(each) for each in facts])
        elif facts:
            console.table(_COLUMNS, [_row(each, console.style) for each in facts])
        else:
            console.note("No tasks. Write functions with @task in an app's tasks.py.")


def _facts(backlogs: Iterable[TaskBacklog], found: Iterable[Holder], rows: Iterable[Row]) -> list[TaskFacts]:
    known = {backlog.task_identifier: backlog for backlog in backlogs}
    busy = {name for name, each in known.items() if each.ready or each.retrying or each.failed}
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.name, []).append(row)
    served = [tasks_of(holder) for holder in found if worker_state(holder) == "alive"]
    names = sorted({*registry.tasks.identifiers(), *busy, *by_task})
    return [
        TaskFacts(
            identifier=name,
            backlog=known.get(name),
            workers=sum(name in tasks for tasks in served),
            is_here=name in registry.tasks,
            succeeded=sum(row.succeeded for row in by_task.get(name, ())),
            failed=sum(row.failures for row in by_task.get(name, ())),
            seconds=sum(row.run_seconds for row in by_task.get(name, ())),
        )
        for name in names
    ]


_COLUMNS = (
    Column("TASK", gives_way=True),
    Column("WORKERS", is_number=True),
    Column("READY", is_number=True),
    Column("OLDEST"),
    Column("RETRYING", is_number=True),
    Column("FAILED", is_number=True),
    Column("RUNS/H", is_number=True),
    Column("FAILURES", is_number=True),
    Column("MEAN"),
)


def _row(task: TaskFacts, style: Style) -> list[Cell | str]:
    backlog = task.backlog
    oldest = backlog.oldest_seconds if backlog else None
    is_missed = bool(task.waiting) and not task.workers
    return [
        task.identifier,
        Cell(str(task.workers), style.ERROR if is_missed else None),
        _capped(backlog.ready if backlog else 0),
        "" if oldest is None else text.in_largest_unit(oldest),
        Cell(_capped(backlog.retrying), style.WARNING) if backlog and backlog.retrying else "",
        Cell(_capped(backlog.failed), style.ERROR) if backlog and backlog.failed else "",
        str(task.succeeded + task.failed),
        str(task.failed) if task.failed else "",
        "" if task.mean_seconds is None else text.readable_duration(task.mean_seconds),
    ]


def _capped(number: int) -> str:
    return f"{MAX_COUNTED}+" if number > MAX_COUNTED else str(number)


def _as_dict(task: TaskFacts) -> dict[str, Any]:
    backlog = task.backlog
    return {
        "task_identifier": task.identifier,
        "is_in_this_project": task.is_here,
        "live_workers": task.workers,
        "ready": min(backlog.ready, MAX_COUNTED) if backlog else 0,
        "oldest_ready_seconds": backlog.oldest_seconds if backlog else None,
        "retrying": min(backlog.retrying, MAX_COUNTED) if backlog else 0,
        "failed": min(backlog.failed, MAX_COUNTED) if backlog else 0,
        "counted_up_to": MAX_COUNTED,
        "hours": HOURS,
        "succeeded": task.succeeded,
        "failures": task.failed,
        "mean_seconds": task.mean_seconds,
    }
