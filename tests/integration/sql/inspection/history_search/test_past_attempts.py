"""Searching the history: by id, key, task, queue, outcome, error, words of the payload, and time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from django_graphile_worker.sql.inspection import past_attempts, statement_limits
from django_graphile_worker.sql.inspection.past_attempts import HistoryCriteria, find_attempts
from django_graphile_worker.sql.results import HistoryOutcome
from tests.support.factories import minutes_ago
from tests.support.history import make_attempt

pytestmark = pytest.mark.django_db


@pytest.fixture
def cursor(worker_schema: str) -> Iterator[Any]:
    """A cursor with the limits that the admin sets, and a history of six attempts."""
    with connection.cursor() as opened:
        rows: list[dict[str, Any]] = [
            {"job_id": 1, "task_identifier": "send", "payload": {"order": 4711, "to": "ann@shop.example"}},
            {"job_id": 2, "task_identifier": "send", "job_key": "order-4711", "queue_name": "eu", "worker_id": "w-2"},
            {"job_id": 3, "task_identifier": "sync", "queue_name": "eu", "outcome": 2, "error": "KeyError: 'sku'"},
            {"job_id": 3, "task_identifier": "sync", "queue_name": "eu", "attempt": 2},
            {"job_id": 4711, "task_identifier": "ship", "outcome": 3, "error": "Broken: 100%"},
            {"job_id": 6, "task_identifier": "ship", "payload": {"order": 47110, "note": "ask Ann"}},
        ]
        for age, row in enumerate(rows):
            make_attempt(opened, worker_schema, **row, ended_at=minutes_ago(10 - age))
        statement_limits.limit_statements(opened, timeout=5.0)
        yield opened


def ids(cursor: Any, schema: str, **criteria: Any) -> list[tuple[int, int]]:
    page = find_attempts(cursor, HistoryCriteria(**criteria), schema=schema, limit=10)
    assert page.next_token is None
    return [(row.job_id, row.attempt) for row in page.rows]


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({}, [(6, 1), (4711, 1), (3, 2), (3, 1), (2, 1), (1, 1)]),
        ({"ids": (3, 1)}, [(3, 2), (3, 1), (1, 1)]),
        ({"keys": ("order-4711",)}, [(2, 1)]),
        ({"tasks": ("send",)}, [(2, 1), (1, 1)]),
        ({"tasks": ("send", "sync")}, [(3, 2), (3, 1), (2, 1), (1, 1)]),
        ({"queues": ("eu",)}, [(3, 2), (3, 1), (2, 1)]),
        ({"queues": ("eu",), "tasks": ("sync",), "outcomes": (1,)}, [(3, 2)]),
        ({"workers": ("w-2",)}, [(2, 1)]),
        ({"outcomes": (HistoryOutcome.FAILED, HistoryOutcome.PERMANENTLY_FAILED)}, [(4711, 1), (3, 1)]),
        ({"outcomes": (HistoryOutcome.PERMANENTLY_FAILED,)}, [(4711, 1)]),
        ({"errors": ("KeyError",)}, [(3, 1)]),
        ({"errors": ("100%", "Broken")}, [(4711, 1)]),
        ({"payload": ("4711",)}, [(1, 1)]),
        ({"payload": ("ann",)}, [(6, 1)]),
        ({"payload": ("ann@shop.example",)}, [(1, 1)]),
        ({"payload": ("4711", "nothing")}, []),
        ({"anywhere": ("4711",)}, [(4711, 1), (1, 1)]),
        ({"anywhere": ("order-4711",)}, [(2, 1)]),
        ({"anywhere": ("4711", "ann@shop.example")}, [(1, 1)]),
        ({"anywhere": ("eu", "sync")}, [(3, 2), (3, 1)]),
        ({"anywhere": ("ship", "47110")}, [(6, 1)]),
        ({"anywhere": ("eu",)}, [(3, 2), (3, 1), (2, 1)]),
        ({"anywhere": ("send",), "outcomes": (1,)}, [(2, 1), (1, 1)]),
    ],
)
def test_find__returns_the_attempts_that_meet_the_criteria(
    cursor: Any, worker_schema: str, criteria: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    assert ids(cursor, worker_schema, **criteria) == expected


def test_times__limit_the_search(cursor: Any, worker_schema: str) -> None:
    assert ids(cursor, worker_schema, ended_at=(minutes_ago(8.5), minutes_ago(6.5))) == [(3, 2), (3, 1)]
    assert ids(cursor, worker_schema, ended_at=(minutes_ago(5.5), None)) == [(6, 1)]
    assert ids(cursor, worker_schema, tasks=("send",), ended_at=(None, minutes_ago(9.5))) == [(1, 1)]


@pytest.mark.parametrize("criteria", [{}, {"tasks": ("send", "sync", "ship")}, {"errors": ("",)}])
def test_pages__have_every_attempt_once_and_in_order(cursor: Any, worker_schema: str, criteria: dict[str, Any]) -> None:
    same_moment = minutes_ago(60)
    for attempt in range(1, 5):
        row = {"attempt": attempt, "task_identifier": "send", "ended_at": same_moment, "error": "", "outcome": 2}
        make_attempt(cursor, worker_schema, 9, **row)
    whole = ids(cursor, worker_schema, **criteria)
    seen: list[tuple[int, int]] = []
    token = None
    while True:
        page = find_attempts(cursor, HistoryCriteria(**criteria), schema=worker_schema, limit=3, after=token)
        seen += [(row.job_id, row.attempt) for row in page.rows]
        token = page.next_token
        if token is None:
            break
    assert seen == whole
    assert len(whole) == len(set(whole)) >= 4


def test_search_for_rare_rows__stops_and_continues(
    cursor: Any, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_attempts, "MAX_EXAMINED", 3)
    page = find_attempts(cursor, HistoryCriteria(workers=("w-2",)), schema=worker_schema, limit=10)
    assert (page.rows, page.is_cut_off) == ([], True)
    page = find_attempts(
        cursor, HistoryCriteria(workers=("w-2",)), schema=worker_schema, limit=10, after=page.next_token
    )
    assert [row.job_id for row in page.rows] == [2]


@pytest.mark.parametrize("token", ["x", "2026-01-01~1~1", "2026-01-01 00:00:00+00~1~1; drop", "~~", "a~b~c"])
def test_foreign_token__begins_at_the_start(cursor: Any, worker_schema: str, token: str) -> None:
    page = find_attempts(cursor, HistoryCriteria(), schema=worker_schema, limit=1, after=token)
    assert page.rows[0].job_id == 6


def test_rows__tell_how_long_the_attempt_took_and_the_beginning_of_the_error(cursor: Any, worker_schema: str) -> None:
    make_attempt(cursor, worker_schema, 8, error="E" * 1000, payload={"a": 1})
    (row,) = find_attempts(cursor, HistoryCriteria(ids=(8,)), schema=worker_schema, limit=1).rows
    assert (row.seconds, len(row.error or ""), row.payload_text) == (2.0, past_attempts.MAX_ERROR_LENGTH, None)
    (whole,) = past_attempts.attempts_of_job(cursor, 8, schema=worker_schema)
    assert (len(whole.error or ""), whole.payload_text) == (1000, '{"a": 1}')
    assert whole.ended_at - whole.added_at == timedelta(seconds=5)


def test_payload__of_any_kind_can_be_stored(cursor: Any, worker_schema: str) -> None:
    """The index of words must never keep a job from ending."""
    for number, payload in enumerate(["x" * 3_000_000, "word " * 400_000, "\\u0000", ["9" * 5000], "ä \n 🙂"]):
        make_attempt(cursor, worker_schema, 100 + number, payload=payload)
    assert ids(cursor, worker_schema, payload=("ä",)) == [(104, 1)]


class HistoryCursor:
    """A cursor that counts what the statements read that search the history, and how many they are."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.buffers = self.statements = 0

    def execute(self, text: str, parameters: Any = None) -> None:
        if text.startswith(("/* gw:history */", "/* gw:history-span */")):
            self._cursor.execute(f"explain (analyze, buffers, format json) {text}", parameters)
            plan = self._cursor.fetchone()[0][0]["Plan"]
            self.buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            self.statements += 1
        self._cursor.execute(text, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


SCHEMA: str = settings.GRAPHILE_WORKER["SCHEMA"]
QUOTED = f'"{SCHEMA}"'
HISTORY = f"{QUOTED}._private_history"
# The current day has fewer rows than the days that are over.
DAYS, ROWS, ROWS_OF_TODAY = 4, 6_000, 300
FILL = f"""
insert into {HISTORY} (ended_at, started_at, added_at, run_at, job_id, attempt, outcome,
    task_identifier, worker_id, queue_name, job_key, payload)
select moment, moment, moment, moment, %(day)s * 1000000 + number, 1, case when number %% 50 = 0 then 3 else 1 end,
    'task_' || number %% 10, 'w', case when number %% 3 = 0 then 'queue_' || number %% 30 end,
    case when number %% 4 = 0 then 'key_' || number end, json_build_object('order', %(day)s * 1000000 + number)::text
from (
    select number, %(beginning)s::timestamptz + number * interval '10 s' as moment
    from generate_series(1, %(rows)s) as number) as each"""


@pytest.fixture
def month(versioned_connection: Any) -> tuple[Any, datetime]:
    """A history of some days that are over, with their indexes, and of a part of the current day.

    Returns the connection, and when the current day began.
    """
    today = minutes_ago(0).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(DAYS):
        beginning = today - timedelta(days=DAYS - 1 - day)
        make = f"select {QUOTED}._private_make_history_partitions(0, %s)"
        assert versioned_connection.execute(make.encode(), [beginning]).fetchone() == (1,)
        rows = ROWS_OF_TODAY if beginning == today else ROWS
        versioned_connection.execute(FILL.encode(), {"day": day, "beginning": beginning, "rows": rows})
    index = f"select {QUOTED}._private_index_history(%s)"
    while versioned_connection.execute(index.encode(), [today + timedelta(hours=1)]).fetchone() == (True,):
        pass
    versioned_connection.execute(f"vacuum analyze {HISTORY}".encode())
    return versioned_connection, today


def test_searches__read_a_few_pages_of_a_long_history(month: tuple[Any, datetime]) -> None:
    """On every version of PostgreSQL. The table has about 500 pages.

    The worker of all rows is searched up to a fixed time: how many spans are counted depends on the time that has
    passed since the newest row, which is the time of day without it.
    """
    connection, today = month
    yesterday = today - timedelta(days=1)
    searches: dict[str, tuple[dict[str, Any], int, int]] = {
        "all": ({}, 10, 300),
        "worker": ({"workers": ("w",), "ended_at": (None, yesterday + timedelta(hours=16))}, 10, 500),
        "time": ({"ended_at": (None, minutes_ago(60 * 24 * (DAYS - 2)))}, 10, 300),
        "id": ({"ids": (1_000_007,)}, 1, 60),
        "key": ({"keys": ("key_404",)}, 3, 60),
        "task": ({"tasks": ("task_7",)}, 10, 160),
        "queue": ({"queues": ("queue_3",)}, 10, 60),
        "failed": ({"outcomes": (3,)}, 10, 300),
        "word": ({"payload": ("1000007",)}, 1, 160),
        "anywhere": ({"anywhere": ("1000007",)}, 1, 200),
    }
    for name, (criteria, expected, most) in searches.items():
        with connection.transaction(), connection.cursor() as raw:
            statement_limits.limit_statements(raw, timeout=60.0)
            cursor = HistoryCursor(raw)
            page = find_attempts(cursor, HistoryCriteria(**criteria), schema=SCHEMA, limit=10)
        assert len(page.rows) == expected, (name, page.rows)
        assert cursor.buffers <= most, (name, cursor.buffers)
        assert cursor.statements <= 15, (name, cursor.statements)
