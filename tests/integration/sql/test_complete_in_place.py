"""Jobs are deleted where their claims wrote them, and no other row is, whatever has happened since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import claims, releases
from django_graphile_worker.sql.claims import Claim

RawConnection = psycopg.Connection[Any]
MANY = releases.FEWEST_IN_PLACE + 4
IN_PLACE, BY_ID = "gw:complete-in-place", "gw:complete"


class Cursor:
    """A cursor that notes the tags of its statements."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor
        self.fetchall, self.fetchone = cursor.fetchall, cursor.fetchone
        self.tags: list[str] = []

    def execute(self, query: str, parameters: Any) -> None:
        self.tags.append(query.split()[1])
        self._cursor.execute(query.encode(), parameters)


class Jobs:
    """The jobs of one task, and a worker that claims and completes them."""

    def __init__(self, connection: RawConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self._tokens = 0
        self.cursor = Cursor(connection.cursor())

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(
            text.replace("{jobs}", f'"{self.schema}"._private_jobs').encode(), parameters or None
        )
        return cursor.fetchall() if cursor.description else []

    def claimed(self, count: int = MANY) -> list[Claim]:
        for _ in range(count):
            self.query(f"select \"{self.schema}\".add_job('a_task')")
        ((task_id,),) = self.query(f"select id from \"{self.schema}\"._private_tasks where identifier = 'a_task'")
        self._tokens += 1
        found = claims.claim_jobs(
            self.connection.cursor(),
            schema=self.schema,
            token=f"w/{self._tokens}",
            task_ids=[task_id],
            max_jobs=count,
            max_queues=1,
            max_per_queue=1,
        ).claims
        assert len(found) == count
        return found

    def complete(self, ended: list[Claim]) -> set[int]:
        self.cursor.tags.clear()
        return releases.complete_jobs(self.cursor, ended, schema=self.schema)

    def change(self, claim: Claim, change: str = "priority = priority + 1") -> None:
        self.query(f"update {{jobs}} set {change} where id = %s", claim.id)

    def place_of(self, claim: Claim) -> str:
        ((place,),) = self.query("select ctid::text from {jobs} where id = %s", claim.id)
        return str(place)

    def left(self) -> set[int]:
        return {job_id for (job_id,) in self.query("select id from {jobs}")}


@pytest.fixture
def jobs(raw_connection: Callable[..., RawConnection], worker_schema: str) -> Jobs:
    return Jobs(raw_connection(), worker_schema)


def ids(found: list[Claim]) -> set[int]:
    return {claim.id for claim in found}


def test_many_jobs_of_several_claims__are_deleted_by_one_statement(jobs: Jobs) -> None:
    first, second = jobs.claimed(), jobs.claimed()
    mixed = [claim for pair in zip(first, second, strict=True) for claim in pair]
    assert jobs.complete(mixed) == ids(mixed)
    assert jobs.cursor.tags == [IN_PLACE]
    assert jobs.left() == set()


def test_few_jobs__are_searched_by_id(jobs: Jobs) -> None:
    few = jobs.claimed()[: releases.FEWEST_IN_PLACE - 1]
    assert jobs.complete(few) == ids(few)
    assert jobs.cursor.tags == [BY_ID]


def test_jobs_whose_place_is_unknown__are_searched_by_id(jobs: Jobs) -> None:
    """As those of the fast path and of a claim by a function that returns no places."""
    found = jobs.claimed()
    unknown = [found[0]._replace(token="w/1", xid=None, tid=None), *found[1:]]
    assert jobs.complete(unknown) == ids(found)
    assert jobs.cursor.tags == [BY_ID]


def test_a_job_that_was_changed_since_its_claim__is_deleted_with_the_others(jobs: Jobs) -> None:
    found = jobs.claimed()
    jobs.change(found[3])
    assert jobs.complete(found) == ids(found)
    assert jobs.cursor.tags == [IN_PLACE, BY_ID]
    assert jobs.left() == set()


@pytest.mark.parametrize("change", ["locked_by = 'w/other'", "locked_by = null, locked_at = null"])
def test_a_lost_claim__keeps_its_row(jobs: Jobs, change: str) -> None:
    found = jobs.claimed()
    jobs.change(found[3], change)
    assert jobs.complete(found) == ids(found) - {found[3].id}
    assert jobs.left() == {found[3].id}


def test_a_later_claim_by_the_same_transaction__keeps_its_row(jobs: Jobs) -> None:
    """The token is compared, too: the row is where the late claim says, written by the transaction that it states."""
    found = jobs.claimed()
    late = [claim._replace(token="w/0") for claim in found]
    assert jobs.complete(late) == set()
    assert jobs.left() == ids(found)


def test_another_job_of_the_claim_that_has_taken_the_place__is_not_deleted(
    versioned_connection: RawConnection, worker_schema: str
) -> None:
    """Both rows have the same token, and the first row is somewhere else since a vacuum."""
    jobs = Jobs(versioned_connection, worker_schema)
    found = jobs.claimed()
    moved, other = found[3], found[4]
    jobs.change(moved)
    jobs.query("vacuum {jobs}")
    for _ in range(3 * MANY):
        jobs.change(other)
        if jobs.place_of(other) == moved.tid:
            break
    assert jobs.place_of(other) == moved.tid
    ended = [claim for claim in found if claim is not other]
    assert jobs.complete(ended) == ids(ended)
    assert jobs.left() == {other.id}
    # A change since the claim alone, on every version.
    again = jobs.claimed()
    assert jobs.complete(again) == ids(again)
    assert jobs.cursor.tags == [IN_PLACE]


def test_a_job_that_another_transaction_changes__is_left_and_the_others_are_deleted(
    jobs: Jobs, raw_connection: Callable[..., RawConnection]
) -> None:
    found = jobs.claimed()
    with raw_connection().transaction() as other:
        text = f'update "{jobs.schema}"._private_jobs set priority = 5 where id = %s'
        other.connection.execute(text.encode(), [found[3].id])
        jobs.query("set statement_timeout = '30s'")
        assert jobs.complete(found) == ids(found) - {found[3].id}
    assert jobs.complete(found[3:4]) == {found[3].id}


def test_the_limit_on_waiting__ends_with_the_statement(jobs: Jobs) -> None:
    found = jobs.claimed()
    with jobs.connection.transaction():
        jobs.complete(found)
        assert jobs.query("show lock_timeout") == [("0",)]


def test_a_claim_that_finds_nothing__begins_no_transaction_that_writes(jobs: Jobs) -> None:
    with jobs.connection.transaction():
        (claim,) = jobs.claimed(1)
        assert jobs.query("select pg_current_xact_id_if_assigned()::xid::text") == [(claim.xid,)]
    with jobs.connection.transaction():
        jobs.complete([])
        assert claims_nothing(jobs)
        assert jobs.query("select pg_current_xact_id_if_assigned()") == [(None,)]


def claims_nothing(jobs: Jobs) -> bool:
    found = claims.claim_jobs(
        jobs.connection.cursor(),
        schema=jobs.schema,
        token="w/0",
        task_ids=[1],
        max_jobs=1,
        max_queues=1,
        max_per_queue=1,
    )
    return not found.claims
