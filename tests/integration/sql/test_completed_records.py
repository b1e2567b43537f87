"""Completed jobs are deleted, each with its own record, and no other row is, whatever has happened since the claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import claims, releases
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import CompletedJobs, KeptResults
from django_graphile_worker.sql.results import announced_jobs, register_waiter

RawConnection = psycopg.Connection[Any]
MANY = 20
RECORDED = {"history": False, "results and history": True}
recorded = pytest.mark.parametrize("has_results", RECORDED.values(), ids=RECORDED)


class Jobs:
    """The jobs of two tasks, and a worker that claims and completes them."""

    def __init__(self, connection: RawConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self.cursor = connection.cursor()
        self._tokens = 0
        self.task_names: dict[int, str] = {}

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(text.replace("{s}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def claimed(self, count: int = MANY) -> list[Claim]:
        """Claim jobs of two tasks, in queues and with keys."""
        for number in range(count):
            key, queue = (f"key {self._tokens} {number}", "a queue") if number % 5 == 0 else (None, None)
            self.query(
                "select {s}.add_job(%s, json_build_object('n', %s::int), queue_name := %s, job_key := %s)",
                f"task_{number % 2}",
                number,
                queue,
                key,
            )
        self.task_names = dict(self.query("select id, identifier from {s}._private_tasks"))
        self._tokens += 1
        found = claims.claim_jobs(
            self.connection.cursor(),
            schema=self.schema,
            token=f"django-worker-1/{self._tokens}",
            task_ids=list(self.task_names),
            max_jobs=count,
            max_per_queue=count,
        ).claims
        assert len(found) == count
        self.query("update {s}._private_job_queues set locked_at = null, locked_by = null")
        return found

    def complete(self, ended: list[Claim], *, has_results: bool, payloads: bool = True) -> set[int]:
        """Complete jobs; the duration, the result and the payload of each tell its id."""
        ordered = sorted(ended, key=lambda claim: claim.token)
        number = len(ordered)
        ids = [claim.id for claim in ordered]
        texts: list[str | None] = [str(job_id) for job_id in ids]
        results = KeptResults([7] * number, [60.0] * number, texts, [True] * number)
        completed = CompletedJobs(
            claims=ordered,
            durations=[1_000_000 + job_id for job_id in ids],
            identifiers=self.task_names,
            has_history=True,
            results=results if has_results else None,
            history_payloads=texts if payloads else None,
        )
        return releases.complete_recorded(self.cursor, completed, schema=self.schema)

    def history(self) -> list[Any]:
        return self.query(
            "select job_id, round(1e6 * (extract(epoch from ended_at - started_at) - 1)), payload, task_identifier,"
            " queue_name, job_key, worker_id, attempt, outcome from {s}._private_history order by job_id"
        )

    def expected_history(self, ended: list[Claim]) -> list[Any]:
        return [
            (
                claim.id,
                claim.id,
                str(claim.id),
                self.task_names[claim.task_id],
                claim.queue_name,
                claim.key,
                "django-worker-1",
                1,
                1,
            )
            for claim in sorted(ended)
        ]

    def results(self) -> list[Any]:
        return self.query(
            "select job_id, value, payload::json ->> 'n', task_identifier, queue_name, job_key, status,"
            " jsonb_array_length(attempts), attempts #>> '{{0,worker_id}}' from {s}._private_results order by job_id"
        )

    def expected_results(self, ended: list[Claim]) -> list[Any]:
        return [
            (
                claim.id,
                str(claim.id),
                claim.payload_text.split(":")[1].strip(" }"),
                self.task_names[claim.task_id],
                claim.queue_name,
                claim.key,
                1,
                1,
                "django-worker-1",
            )
            for claim in sorted(ended)
        ]

    def left(self) -> set[int]:
        return {job_id for (job_id,) in self.query("select id from {s}._private_jobs")}


@pytest.fixture
def jobs(raw_connection: Callable[..., RawConnection], worker_schema: str) -> Jobs:
    return Jobs(raw_connection(), worker_schema)


def ids(found: list[Claim]) -> set[int]:
    return {claim.id for claim in found}


B_TREES = """
select index.indexrelid::regclass::text, pg_relation_size(index.indexrelid) / current_setting('block_size')::int
from pg_index as index
join pg_class as class on class.oid = index.indexrelid
join pg_am as method on method.oid = class.relam and method.amname = 'btree'
where index.indrelid in (select tableoid from {s}._private_history)"""


def test_success_without_key_and_queue__writes_no_entry_of_a_b_tree(
    shared_connection: RawConnection, worker_schema: str
) -> None:
    """An entry costs the statement half as much as the row."""
    jobs = Jobs(shared_connection, worker_schema)
    jobs.query("select {s}._private_make_history_partitions(1)")
    plain = [claim for claim in jobs.claimed(2 * MANY) if claim.key is None]
    assert jobs.complete(plain, has_results=False) == ids(plain)
    assert len(jobs.history()) == len(plain)
    b_trees = dict(jobs.query(B_TREES))
    # The first page of a B-tree has no entries.
    assert len(b_trees) == 3
    assert set(b_trees.values()) == {1}, b_trees


def test_each_job__has_its_own_record_on_every_version(shared_connection: RawConnection, worker_schema: str) -> None:
    jobs = Jobs(shared_connection, worker_schema)
    for has_results in RECORDED.values():
        first, second = jobs.claimed(), jobs.claimed()
        # Two of the ids of the first claim are missing, and the order is another.
        mixed = [*second, *first[4:], *first[1:3]]
        assert jobs.complete(mixed, has_results=has_results) == ids(mixed)
        assert jobs.left() == {first[0].id, first[3].id}
        assert jobs.history() == jobs.expected_history(mixed)
        assert jobs.results() == (jobs.expected_results(mixed) if has_results else [])
        jobs.query("truncate {s}._private_jobs, {s}._private_history, {s}._private_results")


@pytest.mark.parametrize("rewrite", ["vacuum full {s}._private_jobs", "cluster {s}._private_jobs using jobs_pkey1"])
def test_rows_that_a_rewrite_has_moved__are_completed_and_no_others(
    shared_connection: RawConnection, worker_schema: str, rewrite: str
) -> None:
    """All rows of a claim have the same xmin and token, and the rewrite gives each the place of another."""
    jobs = Jobs(shared_connection, worker_schema)
    jobs.query("alter table {s}._private_jobs set (fillfactor = 100)")
    ways: list[Callable[[list[Claim]], set[int]]] = [
        lambda ended: releases.complete_jobs(jobs.cursor, ended, schema=worker_schema),
        lambda ended: jobs.complete(ended, has_results=False),
        lambda ended: jobs.complete(ended, has_results=True),
    ]
    for complete in ways:
        found = jobs.claimed(300)
        jobs.query(rewrite)
        for first in range(0, 300, MANY):
            batch = found[first : first + MANY]
            assert complete(batch) == ids(batch)
            assert jobs.left() == ids(found[first + MANY :])
        jobs.query("truncate {s}._private_jobs, {s}._private_history, {s}._private_results")


@recorded
def test_a_job_that_was_changed_since_its_claim__is_recorded_once(jobs: Jobs, *, has_results: bool) -> None:
    found = jobs.claimed()
    jobs.query("update {s}._private_jobs set priority = 5 where id = %s", found[-1].id)
    assert jobs.complete(found, has_results=has_results) == ids(found)
    assert jobs.history() == jobs.expected_history(found)


@recorded
def test_a_lost_claim__keeps_its_row_and_has_no_record(jobs: Jobs, *, has_results: bool) -> None:
    found = jobs.claimed()
    jobs.query("update {s}._private_jobs set locked_by = 'another' where id = %s", found[3].id)
    kept = [claim for claim in found if claim is not found[3]]
    assert jobs.complete(found, has_results=has_results) == ids(kept)
    assert jobs.left() == {found[3].id}
    assert jobs.history() == jobs.expected_history(kept)


@recorded
def test_a_job_that_another_transaction_changes__is_left_without_waiting(
    jobs: Jobs, raw_connection: Callable[..., RawConnection], *, has_results: bool
) -> None:
    found = jobs.claimed()
    kept = [claim for claim in found if claim is not found[3]]
    with raw_connection().transaction() as other:
        text = f'update "{jobs.schema}"._private_jobs set priority = 5 where id = %s'
        other.connection.execute(text.encode(), [found[3].id])
        jobs.query("set statement_timeout = '30s'")
        assert jobs.complete(found, has_results=has_results) == ids(kept)
    assert jobs.complete(found[3:4], has_results=has_results) == {found[3].id}
    assert jobs.history() == jobs.expected_history(found)


def test_a_removed_job__is_recorded_with_its_key_and_its_attempt(jobs: Jobs) -> None:
    found = jobs.claimed()
    removed = next(claim for claim in found if claim.key is not None)
    jobs.query("select {s}.remove_job(%s)", removed.key)
    assert jobs.complete(found, has_results=False) == ids(found)
    assert jobs.history() == jobs.expected_history(found)


def test_an_earlier_attempt__stays_in_the_result(jobs: Jobs) -> None:
    found = jobs.claimed()
    jobs.query(
        "insert into {s}._private_results (job_id, task_identifier, status, added_at, attempts, expires_at)"
        " values (%s, 'task', 0, now(), '[{\"worker_id\": \"django-worker-0\"}]', now() + interval '1 day')",
        found[2].id,
    )
    assert jobs.complete(found, has_results=True) == ids(found)
    texts = jobs.query("select attempts #>> '{{0,worker_id}}' from {s}._private_results where status = 1")
    assert sorted(texts) == [("django-worker-0",), *[("django-worker-1",)] * (MANY - 1)]


def test_a_session_that_waits__is_notified(jobs: Jobs, raw_connection: Callable[..., RawConnection]) -> None:
    found = jobs.claimed()
    waiting = raw_connection()
    waiting.execute('listen "jobs:result"')
    with waiting.cursor() as cursor:
        register_waiter(cursor, [found[1].id, found[4].id], waiter="a test", seconds=60, schema=jobs.schema)
    assert jobs.complete(found, has_results=True) == ids(found)
    (notification,) = waiting.notifies(timeout=30, stop_after=1)
    assert announced_jobs(notification.payload) == {(jobs.schema, found[1].id), (jobs.schema, found[4].id)}
