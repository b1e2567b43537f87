"""A claim reads in proportion to what it returns, whatever else lies in the table, on each version of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import psycopg
import pytest
from django.conf import settings

from django_graphile_worker.sql import claims
from django_graphile_worker.sql.claims import Claimed
from tests.support.buffers import MeasuringCursor
from tests.support.index_descents import IndexDescents

SCHEMA: str = settings.GRAPHILE_WORKER["SCHEMA"]
JOBS, QUEUES, TASKS = (f'"{SCHEMA}"._private_{name}' for name in ("jobs", "job_queues", "tasks"))
FEW, MANY, LONG = 1_000, 16_000, 200_000
DUE, FUTURE = "now() - interval '1 hour'", "now() + interval '1 day'"
FORBIDDEN = "jsonb_build_object('f' || n, true, 'heavy', true)"
TASK, UNKNOWN = 1, 2
# Queues 1 to 1,000 are free, the last of them has a job to run; the next is held.
FREE, HELD = 1_000, 1_001
# A scan that does not stop where it should reads some hundred buffers more of a large backlog.
TOLERANCE = 40

# What is inserted for each n, as (task_id, priority, run_at, job_queue_id, flags, attempts).
SHAPES = {
    "future": f"{TASK}, 0, {FUTURE}, null, null, 0",
    "future at a better priority": f"{TASK}, -5, {FUTURE}, null, null, 0",
    "future in queues": f"{TASK}, 0, {FUTURE}, 1 + n %% 1000, null, 0",
    "due at another priority": f"{TASK}, 10, {DUE}, null, null, 0",
    "due in queues at another priority": f"{TASK}, 10, {DUE}, 1 + n %% 1000, null, 0",
    "due, each at a priority of its own": f"{TASK}, 10 + n %% 20000, {DUE}, null, null, 0",
    "an unknown task": f"{UNKNOWN}, 0, {DUE}, null, null, 0",
    "an unknown task, future": f"{UNKNOWN}, 0, {FUTURE}, null, null, 0",
    "an unknown task in queues": f"{UNKNOWN}, 0, {DUE}, 1 + n %% 1000, null, 0",
    "a held queue": f"{TASK}, 0, {DUE}, {HELD}, null, 0",
    "failed": f"{TASK}, 0, {DUE}, null, null, 25",
    "failed in a queue": f"{TASK}, 0, {DUE}, {FREE}, null, 25",
    "limited, parked": f"{TASK}, 0, 'infinity', null, null, 0",
    "distinct flags, at another priority": f"{TASK}, 10, {DUE}, null, jsonb_build_object('f' || n, true), 0",
    "a future job with a flag each": f"{TASK}, 0, {FUTURE}, null, jsonb_build_object('f' || n, true), 0",
}
# What a claim passes a part of: its cost is bounded, and the next claim goes on behind.
HIDING_SHAPES = {
    "one forbidden flag": f"""{TASK}, 0, {DUE}, null, '{{"heavy": true}}', 0""",
    "forbidden flags, each in another set": f"{TASK}, 0, {DUE}, null, {FORBIDDEN}, 0",
    "forbidden flags in queues": f"{TASK}, 0, {DUE}, 1 + n %% 999, {FORBIDDEN}, 0",
    "forbidden flags in one queue": f"{TASK}, 0, {DUE}, {FREE}, {FORBIDDEN}, 0",
    "queues that are held": f"{TASK}, 0, {DUE}, {HELD} + 1 + n %% 10000, null, 0",
    "a held queue and future in queues": f"{TASK}, 0, case when n %% 2 = 0 then {DUE} else {FUTURE} end,"
    f" case when n %% 2 = 0 then {HELD} else 1 + n %% 1000 end, null, 0",
}
MAX_OF_A_PART = 8_000

Connection = psycopg.Connection[Any]
Measure = Callable[..., tuple[int, Claimed]]


@pytest.fixture
def connection(shared_connection: Connection) -> Connection:
    database = shared_connection
    database.execute(f"insert into {TASKS} (identifier) values ('task'), ('unknown')".encode())
    database.execute(f"insert into {QUEUES} (queue_name) select 'q' || n from generate_series(1, {HELD}) as n".encode())
    database.execute(f"update {QUEUES} set locked_at = now(), locked_by = 'other' where id = {HELD}".encode())
    return database


@pytest.fixture
def measure(connection: Connection) -> Measure:
    """The buffers of a claim, and the claim."""

    def measure(task_ids: Sequence[int] = (TASK,), max_jobs: int = 10, **options: Any) -> tuple[int, Claimed]:
        cursor = MeasuringCursor(connection)
        claimed = make_claim(cursor, task_ids, max_jobs, **options)
        return cursor.buffers, claimed

    return measure


def make_claim(cursor: Any, task_ids: Sequence[int] = (TASK,), max_jobs: int = 10, **options: Any) -> Claimed:
    claim = partial(claims.claim_jobs, cursor, schema=SCHEMA, token="w/1", task_ids=task_ids)
    return claim(**{"forbidden_flags": ["heavy"], "max_jobs": max_jobs, "max_per_queue": 10, **options})


def insert(connection: Connection, values: str, series: str) -> None:
    columns = "task_id, priority, run_at, job_queue_id, flags, attempts"
    text = f"insert into {JOBS} ({columns}) select {values} from {series}"
    connection.execute(text.replace("%%", "%").encode())


@pytest.mark.parametrize("shape", SHAPES)
def test_cost__does_not_grow_with_a_backlog_of(shape: str, connection: Connection, measure: Measure) -> None:
    compare_sizes(shape, 2 * FEW, MANY, connection, measure)


# The long tables take longer to fill than all other tests of this file.
@pytest.mark.chaos
@pytest.mark.parametrize("shape", SHAPES)
def test_cost__does_not_grow_with_a_long_backlog_of(shape: str, connection: Connection, measure: Measure) -> None:
    compare_sizes(shape, 2 * FEW, LONG, connection, measure)


def compare_sizes(shape: str, few_jobs: int, many_jobs: int, connection: Connection, measure: Measure) -> None:
    insert(connection, SHAPES[shape], f"generate_series(1, {few_jobs}) as n")
    insert(connection, f"{TASK}, 0, now(), null, null, 0", "generate_series(1, 3)")
    insert(connection, f"{TASK}, 0, now(), {FREE}, null, 0", "generate_series(1, 1)")
    few, _ = measure()
    descents = IndexDescents(connection, JOBS, partial(make_claim, connection.cursor()))
    # What was rolled back is removed, and the planner knows a small table.
    connection.execute(f"vacuum {JOBS}, {QUEUES}".encode())
    insert(connection, SHAPES[shape], f"generate_series({few_jobs + 1}, {many_jobs}) as n")
    connection.execute("discard plans")
    many, claimed = measure()
    others = {claim.priority for claim in claimed.claims} - {0}
    assert bool(others) == ("another priority" in shape or "of its own" in shape)
    assert sum(claim.priority == 0 for claim in claimed.claims) == 4
    # As often as in the small table, each index may be descended through the levels that it has got.
    at_most = few + descents.pages_of_new_levels() + TOLERANCE
    assert many < at_most
    connection.execute(f"vacuum analyze {JOBS}, {QUEUES}".encode())
    connection.execute("discard plans")
    assert measure()[0] < at_most


def test_cost__does_not_grow_with_future_jobs_where_none_in_a_queue_is_due(
    connection: Connection, measure: Measure
) -> None:
    """No due job ends the search of the first one in a queue."""
    insert(connection, f"{TASK}, 0, now(), null, null, 0", "generate_series(1, 3)")
    few, _ = measure()
    insert(connection, SHAPES["future in queues"], f"generate_series(1, {MANY}) as n")
    connection.execute(f"vacuum analyze {JOBS}, {QUEUES}".encode())
    buffers, claimed = measure()
    assert len(claimed.claims) == 3
    assert buffers < few + TOLERANCE


@pytest.mark.parametrize("shape", HIDING_SHAPES)
def test_cost__is_bounded_and_the_next_claim_goes_on_behind(
    shape: str, connection: Connection, measure: Measure
) -> None:
    hold_other_queues(connection)
    insert(connection, HIDING_SHAPES[shape], f"generate_series(1, {MANY}) as n")
    insert(connection, f"{TASK}, 0, now(), null, null, 0", "generate_series(1, 3)")
    insert(connection, f"{TASK}, 0, now(), null, '{{}}', 0", "generate_series(1, 1)")
    insert(connection, f"{TASK}, 0, now(), {FREE}, null, 0", "generate_series(1, 1)")
    connection.execute(f"vacuum analyze {JOBS}, {QUEUES}".encode())
    found: set[int] = set()
    behind, is_complete, number = claims.START, False, 0
    while not is_complete:
        # The claims of each measurement are rolled back.
        buffers, claimed = measure(behind=behind)
        assert buffers < MAX_OF_A_PART
        found |= {claim.id for claim in claimed.claims}
        behind, is_complete, number = claimed.continuation, not claimed.has_more, number + 1
        assert number < 120
    assert len(found) == 5


def hold_other_queues(connection: Connection) -> None:
    held = f"select 'held' || n, now(), 'other' from generate_series({HELD} + 1, {HELD} + 10000) as n"
    connection.execute(f"insert into {QUEUES} (queue_name, locked_at, locked_by) {held}".encode())


@pytest.mark.parametrize("max_jobs", [10, 200])
def test_cost__does_not_grow_with_tasks_and_priorities(connection: Connection, measure: Measure, max_jobs: int) -> None:
    tasks = list(range(1, 301))
    connection.execute(f"insert into {TASKS} (identifier) select 't' || n from generate_series(3, 300) as n".encode())
    pairs = "generate_series(1, 300) as task, generate_series(0, 39) as priority"
    insert(connection, f"task, priority, {FUTURE}, null, null, 0", pairs)
    buffers, claimed = measure(tasks, max_jobs)
    assert not claimed.claims
    assert claimed.seconds_until_next is not None
    assert buffers < 40 * 12
    insert(connection, "task, 39, now(), null, null, 0", "generate_series(1, 300, 100) as task")
    buffers, claimed = measure(tasks, max_jobs)
    assert len(claimed.claims) == 3
    # Where something is due, each known task costs two look-ups.
    assert buffers < 40 * 12 + 300 * 2 * 3 + 200
    insert(connection, f"task, 20, {DUE}, null, null, 0", "generate_series(1, 300) as task, generate_series(1, 10)")
    buffers, claimed = measure(tasks, max_jobs)
    assert len(claimed.claims) == max_jobs
    assert buffers < 40 * 12 + 2 * 300 * 2 * 3 + 30 * max_jobs + 300


def test_cost__grows_by_a_look_up_for_each_known_task(connection: Connection, measure: Measure) -> None:
    connection.execute(f"insert into {TASKS} (identifier) select 't' || n from generate_series(3, 300) as n".encode())
    insert(connection, f"7, 0, {DUE}, null, null, 0", "generate_series(1, 3000)")
    insert(connection, f"8, 0, {DUE}, 1 + n %% 1000, null, 0", "generate_series(1, 3000) as n")
    few, _ = measure(range(1, 10), 20)
    many, claimed = measure(range(1, 301), 20)
    assert len(claimed.claims) == 20
    # One for jobs without a queue, and one for jobs in queues.
    assert many < few + 2 * 3 * 291 + TOLERANCE


@pytest.mark.parametrize("tasks", [(TASK,), (TASK, UNKNOWN)], ids=["one task", "two tasks"])
def test_cost__of_jobs_that_another_claim_takes_is_that_of_their_scan(
    tasks: Sequence[int], connection: Connection
) -> None:
    """No row of the other claim is tried: a try reads one more page of the table for each row."""

    def add_jobs() -> None:
        # Anew for each claim: the versions of rows that were rolled back take the room on the pages.
        connection.execute(f"truncate {JOBS}".encode())
        for task in tasks:
            insert(connection, f"{task}, 0, {DUE}, null, null, 0", f"generate_series(1, {2 * FEW})")

    def claim(cursor: psycopg.Cursor[Any], token: str) -> set[int]:
        claim = partial(claims.claim_jobs, cursor, schema=SCHEMA, token=token, task_ids=tasks)
        claimed = claim(max_jobs=FEW, max_per_queue=1)
        return {each.id for each in claimed.claims}

    def pages_read(cursor: psycopg.Cursor[Any]) -> int:
        cursor.execute(f"select pg_stat_get_xact_blocks_fetched('{JOBS}'::regclass)".encode())
        ((pages,),) = cursor.fetchall()
        return int(pages)

    def measure() -> tuple[int, set[int]]:
        with connection.transaction(force_rollback=True), connection.cursor(binary=True) as cursor:
            before = pages_read(cursor)
            ids = claim(cursor, "w/1")
            return pages_read(cursor) - before, ids

    add_jobs()
    alone, _ = measure()
    add_jobs()
    with psycopg.connect(connection.info.dsn) as other:
        taken = claim(other.cursor(binary=True), "other/1")
        beside, claimed = measure()
    assert len(taken) == len(claimed) == FEW
    assert not taken & claimed
    assert beside < alone + FEW / 10
