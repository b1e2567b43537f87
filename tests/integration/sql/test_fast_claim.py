"""The fast claim: all due jobs if they are few and have no queue, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import claims
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.codecs import int_array
from tests.conftest import RawConnection
from tests.support.factories import make_failed_job, make_job, make_task, minutes_ago

WORKER = "django-worker-1"
Look = Callable[..., list[Claim]]


@pytest.fixture
def claim_few(worker_schema: str) -> Callable[..., claims.FastClaimed]:
    def claim_few(*tasks: str, **options: Any) -> claims.FastClaimed:
        task_ids = int_array(make_task(task) for task in tasks or ("task",)).encode()
        parameters: dict[str, Any] = {"token": WORKER, "max_jobs": 10} | options
        return claims.claim_few(straight_to_the_server(worker_schema), task_ids=task_ids, **parameters)

    return claim_few


@pytest.fixture
def look(claim_few: Callable[..., claims.FastClaimed]) -> Look:
    return lambda *tasks, **options: claim_few(*tasks, **options).claims


def straight_to_the_server(schema: str) -> claims.Execute:
    """In the test's own transaction, and planned as in a worker's session."""

    def execute(parameters: Any) -> Any:
        with connection.cursor() as cursor:
            for name, value in claims.FAST_PLANNER.items():
                cursor.execute("select set_config(%s, %s, true)", [name, value])
        result = connection.connection.pgconn.exec_params(claims.fast_claim_statement(schema).encode(), parameters)
        assert result.error_message == b""
        return result

    return execute


def ids(found: list[Claim]) -> list[int]:
    return [claim.id for claim in found]


@pytest.mark.django_db
class TestFastClaim:
    def test_takes_all_that_is_due_first_things_first(self, look: Look) -> None:
        late = make_job(priority=5, run_at=minutes_ago(60))
        same_time = minutes_ago(5)
        first, second = make_job(run_at=same_time), make_job(run_at=same_time)
        other = make_job("another", run_at=minutes_ago(1))
        assert ids(look("task", "another")) == [first, second, other, late]
        assert look("task", "another") == []

    def test_says_of_a_job_what_a_claim_says(self, look: Look, worker_schema: str) -> None:
        options: dict[str, Any] = {"payload": {"é": "\u2603 \\"}, "priority": -3, "key": 'k "1"', "flags": {"f": True}}
        make_job(**options, last_error="oh\nno", max_attempts=7, run_at=minutes_ago(2.5))
        with connection.cursor() as cursor:
            cursor.execute("savepoint before")
            (claim,) = claims.claim_jobs(
                cursor,
                schema=worker_schema,
                token=WORKER,
                task_ids=[make_task("task")],
                max_jobs=9,
                max_per_queue=9,
            ).claims
            cursor.execute("rollback to before")
        assert look() == [claim]
        assert claim.key == 'k "1"'

    def test_reads_times_to_the_microsecond_whatever_the_role_has_set(self, look: Look) -> None:
        run_at = minutes_ago(5).replace(microsecond=123_457)
        make_job(run_at=run_at)
        with connection.cursor() as cursor:
            cursor.execute("set local extra_float_digits = -15")
        (claim,) = look()
        assert claim.to_job(task_identifier="task", payload=None, locked_at_epoch=0.0).run_at == run_at

    def test_counts_the_attempt_and_names_the_holder(self, look: Look, worker_schema: str) -> None:
        job_id = make_job()
        assert look()[0].attempts == 1
        with connection.cursor() as cursor:
            cursor.execute(
                "select attempts, locked_by, locked_at = now(), is_available"
                f' from "{worker_schema}"._private_jobs where id = %s',
                [job_id],
            )
            assert cursor.fetchone() == (1, WORKER, True, False)

    def test_leaves_future_failed_locked_and_unknown_jobs(self, look: Look) -> None:
        make_job(run_at=minutes_ago(-1))
        make_failed_job()
        make_job(locked_by="somebody")
        make_job("unknown")
        ready = make_job()
        assert ids(look()) == [ready]

    @pytest.mark.parametrize("flag", ["heavy", 'with "quotes"', "back\\slash", "a,b", "{}", "snow \u2603", "null"])
    def test_leaves_forbidden_flags(self, look: Look, flag: str) -> None:
        make_job(flags={flag: True})
        allowed = make_job(flags={"other": True})
        assert ids(look(forbidden_flags=[flag, "unused"])) == [allowed]

    def test_returns_when_the_next_job_falls_due(self, claim_few: Callable[..., claims.FastClaimed]) -> None:
        make_job()
        make_job("unknown", run_at=minutes_ago(-1))
        make_job(run_at=minutes_ago(-30), queue_name="q")
        seconds = claim_few().seconds_until_next
        assert seconds is not None
        assert 29 * 60 < seconds <= 30 * 60

    def test_goes_by_the_clock_it_is_given(self, look: Look) -> None:
        job_id = make_job(run_at=minutes_ago(-30))
        assert look(now=minutes_ago(-29)) == []
        assert ids(look(now=minutes_ago(-31))) == [job_id]

    def test_takes_nothing_when_a_queue_is_to_be_weighed_up(self, look: Look) -> None:
        make_job()
        make_job(queue_name="q")
        assert look() == []

    def test_a_queue_that_is_not_due_or_not_ours_is_no_matter(self, look: Look) -> None:
        make_job(queue_name="q", run_at=minutes_ago(-1))
        make_job("unknown", queue_name="r")
        ready = make_job()
        assert ids(look()) == [ready]

    def test_takes_nothing_when_there_is_more_than_free_slots(self, look: Look) -> None:
        for _ in range(3):
            make_job()
        assert look(max_jobs=2) == []
        assert len(look(max_jobs=3)) == 3

    def test_takes_nothing_in_a_crowd(self, look: Look) -> None:
        for _ in range(48):
            make_job("unknown", priority=9)
        first = make_job()
        assert ids(look()) == [first]
        make_job("unknown", priority=9)
        make_job()
        assert look() == []


@pytest.mark.django_db(transaction=True)
class TestBesideOthers:
    def test_skips_rows_that_another_transaction_holds(
        self, look: Look, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        held, ready = make_job(), make_job()
        site = raw_connection(autocommit=False)
        site.execute(f'select from "{worker_schema}"._private_jobs where id = {held} for update')
        assert ids(look()) == [ready]
        site.rollback()
        assert ids(look()) == [held]

    def test_reads_no_more_of_a_long_table_than_it_looks_at(
        self, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        session = raw_connection()
        table = f'"{worker_schema}"._private_jobs'
        task_id = make_task("task")
        # Dead entries of other tests in the index, which an old snapshot may keep there, must not count.
        session.execute(f"truncate {table}")
        session.execute(
            f"insert into {table} (task_id, priority, run_at)"
            f" select {task_id}, n % 9, now() + interval '1 day' from generate_series(1, 5000) as n"
        )
        for name, value in claims.FAST_PLANNER.items():
            session.execute("select set_config(%s, %s, false)", [name, value])
        session.execute(f"prepare look as {claims.fast_claim_statement(worker_schema)}")
        explain = f"explain (analyze, buffers, format json) execute look ('w', '{{{task_id}}}', 10, null, null)"
        row = session.execute(explain).fetchone()
        assert row is not None
        assert row[0][0]["Plan"]["Shared Hit Blocks"] + row[0][0]["Plan"]["Shared Read Blocks"] < 60
        session.execute("deallocate look")
