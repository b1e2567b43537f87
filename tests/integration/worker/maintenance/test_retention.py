"""What has expired goes by itself, in small steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection
from psycopg import errors

from django_graphile_worker import Limit, add_job, complete_jobs, conf, task
from django_graphile_worker.sql import limits, results
from django_graphile_worker.worker.database import connection as database_connection
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.maintenance.retention import FORGET_INTERVAL, LOOK_INTERVAL, Retention
from tests.conftest import RawConnection
from tests.support import records
from tests.support.factories import make_failed_job, make_job
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

MONTH = timedelta(days=30)


def task_of_the_test(payload: Any) -> None: ...


@pytest.fixture
def build(worker_schema: str) -> Iterator[Build]:
    records.drop_days(worker_schema)
    with stepped_workers(task_of_the_test) as make:
        yield make
    records.drop_days(worker_schema)


def finish_look(retention: Retention) -> int:
    """Do all steps of a look; return how many there were."""
    retention._has_waited = True
    count = 1
    while retention.step() < LOOK_INTERVAL / 2:
        count += 1
    return count


def execute(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def make_results(schema: str, *job_ids: int, expired: bool = True) -> None:
    execute(
        f'insert into "{schema}"._private_results (job_id, task_identifier, status, added_at, expires_at)'
        " select id, 'a task', 0, now(), now() + %s::interval from unnest(%s::bigint[]) as id",
        "-1 minute" if expired else "1 minute",
        list(job_ids),
    )


def test_expired_results__go_in_several_steps(
    build: Build, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(results.prune_results.__kwdefaults__, "most", 10)  # type: ignore[arg-type]
    make_results(worker_schema, *range(1000, 1035))
    make_results(worker_schema, 1, 2, expired=False)
    assert finish_look(build().retention) == 4
    assert list(records.results(worker_schema)) == [1, 2]


def test_result_of_an_unfinished_job__stays_another_day(build: Build, worker_schema: str) -> None:
    waiting, running = make_job("task_of_the_test"), make_job("task_of_the_test", attempts=25, locked_by="somebody")
    failed = make_failed_job("task_of_the_test")
    make_results(worker_schema, waiting, running, failed)
    retention = build().retention
    finish_look(retention)
    kept = records.results(worker_schema)
    assert sorted(kept) == [waiting, running]
    assert all(row.expires_at > datetime.now(UTC) + timedelta(hours=23) for row in kept.values())


def test_rows_of_sessions_that_waited__go_when_they_are_stale(build: Build, worker_schema: str) -> None:
    records.wait_for(worker_schema, 1)
    records.wait_for(worker_schema, 2)
    execute(f"update \"{worker_schema}\"._private_waiters set expires_at = now() - interval '1 s' where job_id = 1")
    finish_look(build().retention)
    with connection.cursor() as cursor:
        cursor.execute(f'select job_id from "{worker_schema}"._private_waiters')
        assert cursor.fetchall() == [(2,)]


def days(schema: str) -> dict[str, list[str]]:
    """Return the partitions of single days, each with the names of its own indexes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select child.relname, array(select index.indexrelid::regclass::text from pg_index as index"
            " where index.indrelid = child.oid and not exists ("
            " select from pg_inherits as part where part.inhrelid = index.indexrelid) order by 1)"
            " from pg_inherits join pg_class as child on child.oid = inhrelid"
            " where inhparent = %s::regclass and child.relname <> '_private_history_default' order by 1",
            [f'"{schema}"._private_history'],
        )
        return {name: [each.rpartition(".")[2] for each in indexes] for name, indexes in cursor.fetchall()}


def name_of(days_ahead: int) -> str:
    return f"_private_history_{datetime.now(UTC) + timedelta(days=days_ahead):%Y%m%d}"


def add_history(schema: str, days_ago: int, job_id: int = 1) -> None:
    execute(
        f'insert into "{schema}"._private_history (ended_at, added_at, run_at, job_id, attempt, outcome,'
        " task_identifier) select at, at, at, %s, 1, 1, 'a task' from (select now() - %s * interval '1 day') as t(at)",
        job_id,
        days_ago,
    )


def test_days_of_the_history__are_made_ahead_and_once(build: Build, worker_schema: str) -> None:
    worker, another = build(history=MONTH), build(history=MONTH)
    finish_look(worker.retention)
    finish_look(another.retention)
    assert list(days(worker_schema)) == [name_of(0), name_of(1), name_of(2)]


def test_old_days__are_dropped_and_closed_days_are_indexed(
    build: Build, worker_schema: str, raw_connection: Callable[..., RawConnection]
) -> None:
    for days_ago in (40, 31, 3):
        execute(
            f"select \"{worker_schema}\"._private_make_history_partitions(0, now() - %s * interval '1 day')",
            days_ago,
        )
        add_history(worker_schema, days_ago)
    add_history(worker_schema, 50)
    finish_look(build(history=MONTH).retention)
    closed = name_of(-3)
    assert days(worker_schema) == {
        closed: [f"{closed}_job_id", f"{closed}_payload", f"{closed}_task"],
        name_of(0): [],
        name_of(1): [],
        name_of(2): [],
    }
    assert len(records.history(worker_schema)) == 1
    with connection.cursor() as cursor:
        cursor.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and relkind = 'r'"
            " and relname like '\\_private\\_history\\_2%%'",
            [f'"{worker_schema}"'],
        )
        assert len(cursor.fetchall()) == 4


def test_session_that_reads_the_history__keeps_no_job_from_ending(
    build: Build, worker_schema: str, raw_connection: Callable[..., RawConnection]
) -> None:
    """Dropping a day waits a moment only for a long query, and tries again at the next look."""
    execute(f"select \"{worker_schema}\"._private_make_history_partitions(0, now() - interval '40 days')")
    reader = raw_connection(autocommit=False)
    reader.execute(f'select count(*) from "{worker_schema}"._private_history'.encode())
    retention = build(history=MONTH).retention
    finish_look(retention)
    assert name_of(-40) in days(worker_schema)
    reader.rollback()
    finish_look(retention)
    assert name_of(-40) not in days(worker_schema)


def test_role_that_may_not_make_days__is_reported_once_and_prunes_results(
    build: Build, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_graphile_worker.sql import results

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise errors.InsufficientPrivilege("permission denied for function")

    monkeypatch.setattr(results, "make_history_partitions", refuse)
    make_results(worker_schema, 1)
    reported: list[Any] = []
    worker = build(history=MONTH)
    monkeypatch.setattr(worker.reports, "database_trouble", lambda *about: reported.append(about))
    finish_look(worker.retention)
    finish_look(worker.retention)
    assert [str(error) for _, error, _ in reported] == ["permission denied for function"]
    assert records.results(worker_schema) == {}


def test_entries_of_unique_jobs_that_have_ended__go(build: Build, worker_schema: str) -> None:
    waiting, ended = (add_job("task_of_the_test", {"n": number}, unique=True) for number in range(2))
    complete_jobs(ended)
    execute(f"update {worker_schema}._private_unique_jobs set until = now()")
    finish_look(build().retention)
    with connection.cursor() as cursor:
        cursor.execute(f"select job_id from {worker_schema}._private_unique_jobs")
        assert cursor.fetchall() == [(waiting.id,)]


def test_unused_keys__are_deleted_by_a_worker_with_limits(build: Build, worker_schema: str) -> None:
    keys = f'"{worker_schema}"._private_limit_keys'
    execute(f"insert into {keys} (limit_name, key_text, created_at) values ('tenant', 'x', now() - interval '1 day')")
    task("limited", limit=Limit("account:{account}", concurrency=1))(task_of_the_test)
    worker, left = build(), []
    # It finds its tasks when it claims.
    worker.fetcher.step()
    for forget_at in (math.inf, -math.inf):
        worker.retention._forget_at = forget_at
        finish_look(worker.retention)
        with connection.cursor() as cursor:
            cursor.execute(f"select count(*) from {keys}")
            left += cursor.fetchall()
    assert left == [(1,), (0,)]


def test_unused_keys_behind_a_pooler__are_locked_for_one_step_only(
    worker_schema: str, monkeypatch: pytest.MonkeyPatch, raw_connection: Callable[..., RawConnection]
) -> None:
    """Claims and sorters need the locks of the keys, and each step is followed by a pause."""
    monkeypatch.setattr(database_connection, "set_up_session", lambda *arguments, **options: False)
    monkeypatch.setattr(limits, "MAX_FORGOTTEN", 2)
    execute(
        f'insert into "{worker_schema}"._private_limit_keys (limit_name, key_text, created_at)'
        " select 'tenant', number::text, now() - interval '1 day' from generate_series(1, 6) as number"
    )
    times = itertools.count(step=2 * FORGET_INTERVAL)
    worker = Mock()
    worker.database.return_value = Database("default", conf.current(), part="test")
    worker.settings.history = worker.now.return_value = None
    worker.limited.tasks.numbers = {"limit_names": "{}", "rate_windows": "{}"}
    retention = Retention(worker, clock=lambda: float(next(times)))
    other, keys = raw_connection(), f'select count(*) from "{worker_schema}"._private_limit_keys'
    left = [other.execute(keys).fetchone() for _ in retention._look()]
    retention.close()
    assert left[-3:] == [(4,), (2,), (0,)]
