"""Lists for operators read what they show, however much lies beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection import job_list, lock_holders, queue_depths, statement_limits
from django_graphile_worker.sql.inspection.job_list import STATES, Criteria, State
from django_graphile_worker.sql.inspection.overview import oldest_unpaused
from tests.support.factories import make_failed_job, make_job, make_queue, make_task, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db


BACKLOG = 5_000


LIMIT = 10


Read = Callable[[Any, str], object]


def _fill(columns: str, values: str) -> None:
    execute(
        f"insert into {{schema}}._private_jobs (task_id, {columns})"
        f" select %s, {values} from generate_series(1, {BACKLOG}) as number",
        [make_task("crowd")],
    )


@pytest.fixture(params=["future", "ready elsewhere", "failed elsewhere", "queued elsewhere"])
def backlog(request: pytest.FixtureRequest) -> str:
    """Thousands of jobs that are not asked for, and a few that are."""
    kinds = {
        "future": ("run_at", "now() + interval '1 hour' + number * interval '1 second'"),
        "ready elsewhere": ("run_at, priority", "now() - interval '1 hour', number %% 3"),
        "failed elsewhere": ("run_at, attempts, max_attempts", "now() - number * interval '1 second', 3, 3"),
        "queued elsewhere": ("run_at, job_queue_id", f"now() - interval '1 hour', {make_queue('crowded')}"),
    }
    _fill(*kinds[request.param])
    for number in range(3):
        make_job("wanted", run_at=minutes_ago(1), queue_name=None if number else "small", priority=2)
        make_job("wanted", run_at=minutes_ago(-1), queue_name=None if number else "small", priority=2)
        make_job("wanted", run_at=minutes_ago(-1), attempts=1, queue_name=None if number else "small")
        make_failed_job("wanted", queue_name=None if number else "small")
        make_job("wanted", locked_by="worker-1")
    execute("analyze {schema}._private_jobs")
    return str(request.param)


def _scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node.get("Relation Name") == "_private_jobs":
        yield node
    for child in node.get("Plans", ()):
        yield from _scans(child)


class _Explaining:
    """A cursor that explains each statement about jobs as it runs it, and counts the rows it looked at."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.rows = 0

    def execute(self, statement: str, parameters: Any = None) -> None:
        self._cursor.execute(f"explain (analyze, format json) {statement}", parameters)
        (plan,) = self._cursor.fetchone()[0]
        for scan in _scans(plan["Plan"]):
            removed = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
            self.rows += (scan["Actual Rows"] + removed) * scan["Actual Loops"]
        self._cursor.execute(statement, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def _rows_read(read: Read) -> float:
    with connection.cursor() as cursor:
        statement_limits.limit_statements(cursor, timeout=30)
        explaining = _Explaining(cursor)
        read(explaining, settings.GRAPHILE_WORKER["SCHEMA"])
        return explaining.rows


def _lists(backlog: str) -> dict[str, Read]:
    """Return every list there is."""
    narrowings = {
        "any": Criteria(),
        "task": Criteria(tasks=("wanted",)),
        "queue": Criteria(queues=("small",)),
    }
    return {
        f"{state} jobs of {narrowed}": partial(_list, criteria=replace(criteria, state=state))
        for narrowed, criteria in narrowings.items()
        for state in (*STATES, State.ANY)
    }


def _list(cursor: Any, schema: str, *, criteria: Criteria) -> object:
    return job_list.list_jobs(cursor, criteria, limit=LIMIT, schema=schema)


def _earliest(cursor: Any, schema: str, *, state: State) -> object:
    return job_list.earliest(cursor, state, schema=schema)


def test_looks__read_no_more_than_what_they_show_needs(backlog: str) -> None:
    looks = _lists(backlog)
    looks |= {f"earliest of {state}": partial(_earliest, state=state) for state in STATES}
    looks["counts"] = lambda cursor, schema: job_list.count_states(cursor, Criteria(), schema=schema, most=LIMIT)
    paused = [Pause(kind=PauseKind.TASK, name="crowd", paused_at=minutes_ago(1))]
    looks["oldest unpaused"] = lambda cursor, schema: oldest_unpaused(cursor, paused, schema=schema)
    looks["queues"] = lambda cursor, schema: queue_depths.held_first(cursor, limit=LIMIT, schema=schema, most=LIMIT)
    looks["workers"] = lambda cursor, schema: lock_holders.holders(cursor, schema=schema)
    rows = {name: _rows_read(look) for name, look in looks.items()}
    # A few rows for each priority level, task and part, and far from the crowd.
    assert {name: count for name, count in rows.items() if count > 40 * LIMIT} == {}
