from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_graphile_worker import CleanupResult, add_job, cleanup, models, task
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, SchemaError
from django_graphile_worker.registry import Registry, tasks
from django_graphile_worker.sql import cleanup as sql_cleanup
from tests.support.factories import make_failed_job, make_job, make_queue, make_task, minutes_ago
from tests.support.rows import in_quotes, query

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


@pytest.fixture(autouse=True)
def nothing_there(worker_schema: str) -> None:
    """Begin without the names that migrate registered."""
    query(f"with gone as (delete from {in_quotes(worker_schema)}._private_tasks) select 1")


@pytest.fixture
def make_worker(worker_schema: str) -> Callable[..., None]:
    def make(worker_id: str, metadata: dict[str, Any]) -> None:
        query(
            f"insert into {in_quotes(worker_schema)}._private_workers (id, metadata) values (%s, %s) returning 1",
            worker_id,
            json.dumps(metadata),
        )

    return make


def job_ids() -> set[int]:
    return set(models.Job.objects.values_list("id", flat=True))


def task_names() -> set[str]:
    return set(models.Task.objects.values_list("identifier", flat=True))


def queue_names() -> set[str]:
    return set(models.JobQueue.objects.values_list("queue_name", flat=True))


class TestFailedJobs:
    def test_without_an_age_jobs_stay(self) -> None:
        failed = make_failed_job(updated_at=minutes_ago(9999), run_at=minutes_ago(9999))
        assert cleanup().jobs == 0
        assert job_ids() == {failed}

    def test_those_older_than_the_age_go(self) -> None:
        old: dict[str, Any] = {"updated_at": minutes_ago(61), "run_at": minutes_ago(61)}
        make_failed_job(**old)
        kept = {
            make_failed_job(updated_at=minutes_ago(61), run_at=minutes_ago(59)),
            make_failed_job(updated_at=minutes_ago(59), run_at=minutes_ago(61)),
            make_job(**old),
            make_job(**old, attempts=24, max_attempts=25),
            make_failed_job(**old, locked_by="w"),
        }
        assert cleanup(failed_jobs_older_than=HOUR) == CleanupResult(jobs=1)
        assert job_ids() == kept

    def test_an_age_of_zero_takes_all__also_one_whose_next_try_would_have_been_in_the_future(self) -> None:
        make_failed_job(run_at=minutes_ago(-300))
        make_failed_job()
        assert cleanup(failed_jobs_older_than=timedelta(0)).jobs == 2

    @pytest.mark.django_db(transaction=True)
    def test_a_job_in_somebodys_hands_is_passed_over(
        self, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        held = make_failed_job()
        make_failed_job()
        other = raw_connection(autocommit=False)
        other.execute(f"select from {in_quotes(worker_schema)}._private_jobs where id = %s for update", [held])
        assert cleanup(failed_jobs_older_than=timedelta(0)).jobs == 1
        other.rollback()
        assert job_ids() == {held}

    @pytest.mark.parametrize(
        ("age", "kind", "message"),
        [
            (3600, InvalidTypeError, "failed_jobs_older_than: expected a timedelta, got 3600."),
            (
                -HOUR,
                InvalidJobError,
                "failed_jobs_older_than: expected zero or more, got datetime.timedelta(days=-1, seconds=82800).",
            ),
        ],
    )
    def test_an_age_is_a_timedelta(self, age: Any, kind: type[Exception], message: str) -> None:
        with pytest.raises(kind) as refused:
            cleanup(failed_jobs_older_than=age)
        assert str(refused.value) == message


class TestQueues:
    def test_queues_without_jobs_go(self) -> None:
        make_queue("empty")
        make_job(queue_name="used")
        make_queue("locked", locked_by="w")
        assert cleanup().queues == 1
        assert queue_names() == {"used", "locked"}


class TestTasks:
    def test_names_without_jobs_go(self) -> None:
        make_task("forgotten")
        make_job("used")
        assert cleanup() == CleanupResult(tasks=1)
        assert task_names() == {"used"}

    def test_names_of_this_process_stay(self) -> None:
        @task("registered here")
        def registered(payload: Any) -> None: ...

        make_task("registered here")
        assert cleanup().tasks == 0

    def test_names_of_live_workers_stay(self, make_worker: Callable[..., None]) -> None:
        for name in ("one", "two", "three"):
            make_task(name)
        make_worker("w1", {"tasks": ["one"]})
        make_worker("w2", {"tasks": ["two", "four"]})
        assert cleanup() == CleanupResult(tasks=1)
        assert task_names() == {"one", "two"}

    @pytest.mark.parametrize("metadata", [{}, {"tasks": None}, {"tasks": "one"}])
    def test_no_name_is_deleted_while_a_worker_does_not_publish_its_tasks(
        self, metadata: dict[str, Any], make_worker: Callable[..., None]
    ) -> None:
        make_task("one")
        make_queue("empty")
        make_worker("w1", metadata)
        assert cleanup() == CleanupResult(queues=1, is_complete=False)
        assert task_names() == {"one"}


class TestTheLock:
    @pytest.mark.django_db(transaction=True)
    def test_giving_up_leaves_the_callers_transaction_usable(
        self, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        make_failed_job()
        adder = raw_connection(autocommit=False)
        adder.execute(f"select {in_quotes(worker_schema)}.add_job('a')")
        with transaction.atomic():
            before = query("show lock_timeout")
            assert cleanup(failed_jobs_older_than=timedelta(0)) == CleanupResult(jobs=1, is_complete=False)
            assert query("show lock_timeout") == before
            add_job("after")
        adder.rollback()
        assert models.Job.objects.count() == 1

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("is_in_transaction", [False, True])
    def test_an_adder_that_ends_soon_is_waited_for(
        self,
        raw_connection: Callable[..., Any],
        worker_schema: str,
        monkeypatch: pytest.MonkeyPatch,
        is_in_transaction: bool,
    ) -> None:
        make_task("forgotten")
        adder = raw_connection(autocommit=False)
        adder.execute(f"select {in_quotes(worker_schema)}.add_job('a')")
        # The first try has failed when the pause begins.
        monkeypatch.setattr("time.sleep", lambda seconds: adder.commit())
        with transaction.atomic() if is_in_transaction else nullcontext():
            assert cleanup() == CleanupResult(tasks=1)
            assert query("show lock_timeout") == [("0",)]

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("level", ["repeatable read", "serializable"])
    def test_a_transaction_that_may_not_see_a_new_job_deletes_no_name(
        self, raw_connection: Callable[..., Any], worker_schema: str, level: str
    ) -> None:
        make_task("unused")
        make_queue("unused")
        adder = raw_connection()
        with transaction.atomic():
            connection.cursor().execute(f"set transaction isolation level {level}")
            assert task_names() == {"unused"}
            adder.execute(f"select {in_quotes(worker_schema)}.add_job('unused', queue_name => 'unused')")
            assert cleanup() == CleanupResult(is_complete=False)
        assert task_names() == queue_names() == {"unused"}

    @pytest.mark.django_db(transaction=True)
    def test_the_level_of_the_session_does_not_matter_outside_a_transaction(self) -> None:
        make_task("unused")
        connection.cursor().execute("set default_transaction_isolation = 'serializable'")
        try:
            assert cleanup() == CleanupResult(tasks=1)
        finally:
            connection.cursor().execute("reset default_transaction_isolation")

    def test_ones_own_jobs_are_no_obstacle(self) -> None:
        add_job("mine", queue_name="mine")
        make_task("forgotten")
        assert cleanup() == CleanupResult(tasks=1)


class TestNamesThatAreUsedMeanwhile:
    """Names are looked for without a lock: who uses one before it is deleted must keep it."""

    @pytest.fixture
    def between(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
        """Does something once, after names were found and before the first of them is deleted."""

        def do(act: Callable[[], None]) -> None:
            waiting = [act]

            def then_act(find: Callable[..., list[int]]) -> Callable[..., list[int]]:
                def wrapped(*args: Any, **kwargs: Any) -> list[int]:
                    found = find(*args, **kwargs)
                    if waiting:
                        waiting.pop()()
                    return found

                return wrapped

            for name in ("find_unused_queues", "find_unused_tasks"):
                monkeypatch.setattr(sql_cleanup, name, then_act(getattr(sql_cleanup, name)))

        return do

    @pytest.mark.django_db(transaction=True)
    def test_names_are_deleted_in_portions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sql_cleanup, "MAX_FOUND", 4)
        monkeypatch.setattr(sql_cleanup, "MAX_DELETED", 3)
        for number in range(10):
            make_queue(str(number))
            make_task(str(number))
        make_job("used", queue_name="used")
        assert cleanup() == CleanupResult(queues=10, tasks=10)
        assert task_names() == queue_names() == {"used"}


def test_a_role_that_sees_no_rows_gets_an_error(worker_schema: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("create role blind_role")
        cursor.execute(f"grant usage on schema {in_quotes(worker_schema)} to blind_role")
        cursor.execute(f"grant all on all tables in schema {in_quotes(worker_schema)} to blind_role")
        cursor.execute("set local role blind_role")
    with pytest.raises(SchemaError, match=r"'blind_role' may not use .*: _private_job_queues, .* appear empty"):
        cleanup()
    query("select set_config('role', 'none', true)")
