"""Groups of failed jobs: the largest come first, however many small ones there are."""

from __future__ import annotations

import pytest
from django.db import connection

from django_graphile_worker.sql.inspection.error_groups import ErrorGroup, error_groups
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db


def copy(job: int, number: int) -> None:
    execute(
        "insert into {schema}._private_jobs (task_id, run_at, attempts, last_error)"
        " select task_id, run_at, attempts, last_error from {schema}._private_jobs, generate_series(2, %s)"
        " where id = %s",
        [number, job],
    )


def groups(schema: str, most: int) -> list[ErrorGroup]:
    with connection.cursor() as cursor:
        return list(error_groups(cursor, schema=schema, most=most))


def test_largest_group__is_the_first_among_many(worker_schema: str) -> None:
    for letter in "ABCDEFGHIJKL":
        copy(make_failed_job("send", error=f"{letter}Error: no"), 20)
    copy(make_failed_job("send", error="Second: no"), 100)
    copy(make_failed_job("send", error="ZuluError: no"), 1_300)
    copy(make_job("send", attempts=1, last_error="Second: no", run_at=minutes_ago(-5)), 30)
    found = groups(worker_schema, 1_400)
    assert [(each.name, each.number, each.failed, each.is_more) for each in found[:2]] == [
        ("ZuluError", 233, 233, True),
        ("Second", 130, 100, False),
    ]
    assert [(each.number, each.is_more) for each in found[2:]] == [(20, False)] * 12


def test_jobs_that_can_all_be_counted__are_counted_in_each_group(worker_schema: str) -> None:
    for letter in "ABCDEFGHIJKL":
        copy(make_failed_job(f"task {letter}", error="ZuluError: no"), 30)
        copy(make_failed_job(f"task {letter}", error="AlphaError: no"), 25)
    found = groups(worker_schema, 700)
    assert [(each.name, each.number, each.is_more) for each in found] == [
        *[("ZuluError", 30, False)] * 12,
        *[("AlphaError", 25, False)] * 12,
    ]


def test_groups_beyond_the_limit__are_said_to_have_more(worker_schema: str) -> None:
    copy(make_failed_job("send", error="ValueError: no"), 300)
    make_failed_job("send", error="KeyError: no")
    first, second = groups(worker_schema, 200)
    assert (first.name, first.number, first.is_more) == ("ValueError", 100, True)
    assert (second.name, second.number, second.is_more) == ("KeyError", 1, False)
