from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_graphile_worker import (
    InvalidJobError,
    InvalidTypeError,
    Job,
    JobSpec,
    Unique,
    add_job,
    add_jobs,
    complete_jobs,
    get_job,
    models,
    permanently_fail_jobs,
    task,
)
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql import adding
from django_graphile_worker.sql.adding import add_unique_jobs, forget_unique_jobs
from django_graphile_worker.testing import clock, run_jobs
from tests.support.interleaving import Connection, Stage

pytestmark = pytest.mark.django_db


def entries(schema: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"select count(*) from {schema}._private_unique_jobs")
        return int(cursor.fetchone()[0])


class TestWaitingAndRunning:
    def test_equal_payloads_are_one_job(self) -> None:
        first = add_job("report", {"shop": 1, "day": 2}, unique=True)
        second = add_job("report", {"day": 2, "shop": 1}, unique=True)
        assert (first.existed, second.existed) == (False, True)
        assert first == second
        assert models.Job.objects.count() == 1

    def test_other_payloads_other_tasks_and_plain_jobs_are_others(self) -> None:
        add_job("report", {"shop": 1}, unique=True)
        others = [
            add_job("report", {"shop": 2}, unique=True),
            add_job("import", {"shop": 1}, unique=True),
            add_job("report", {"shop": 1}, unique="shop 1"),
            add_job("report", {"shop": 1}),
        ]
        assert not any(job.existed for job in others)
        assert models.Job.objects.count() == 5

    def test_a_key_counts_whatever_the_payload_is(self) -> None:
        first = add_job("report", {"by": "maria"}, unique="shop 1", queue_name="q", priority=3, flags=["a"])
        second = add_job("report", {"by": "peter"}, unique=Unique(key="shop 1"))
        assert second == first
        assert second.payload == {"by": "maria"}

    def test_a_running_job_counts(self) -> None:
        job = add_job("report", unique=True)
        with connection.cursor() as cursor:
            cursor.execute(
                f"update {models.Job._meta.db_table} set locked_at = now(), locked_by = 'w', attempts = max_attempts"
            )
        again = add_job("report", unique=True)
        assert (again.id, again.existed, again.locked_by) == (job.id, True, "w")

    def test_a_job_that_has_ended_does_not_count(self) -> None:
        job = add_job("report", unique=True)
        complete_jobs(job)
        again = add_job("report", unique=True)
        assert not again.existed
        assert again.id != job.id

    def test_a_permanently_failed_job_does_not_count(self) -> None:
        option = Unique(for_=timedelta(hours=1))
        job = add_job("report", unique=option)
        permanently_fail_jobs(job)
        again = add_job("report", unique=option)
        assert not again.existed
        assert add_job("report", unique=option).id == again.id != job.id

    def test_a_task_says_it_for_all_its_jobs(self) -> None:
        with tasks.isolated():

            @task(unique=Unique(key=lambda payload: f"shop {payload['shop']}"))
            def report(payload: Any) -> None: ...

            first = report.add_job({"shop": 1, "by": "maria"})
            assert report.add_job({"shop": 1, "by": "peter"}).existed
            assert not report.add_job({"shop": 2}).existed
            assert not report.add_job({"shop": 1}, unique=False).existed
            assert JobSpec(report, {"shop": 1}).unique == Unique("shop 1")
            assert get_job(first) == first


class TestWindow:
    def test_an_ended_job_counts_within_the_window(self) -> None:
        option = Unique("shop 1", for_=timedelta(minutes=10))
        job = add_job("report", {"n": 1}, unique=option)
        complete_jobs(job)
        again = add_job("report", {"n": 1}, unique=option)
        assert (again.id, again.existed, again.task_identifier) == (job.id, True, "report")
        assert models.Job.objects.count() == 0

    def test_after_the_window_a_job_is_added(self) -> None:
        option = Unique("shop 1", for_=timedelta(minutes=10))
        with clock() as moving:
            job = add_job("report", unique=option)
            complete_jobs(job)
            moving.advance(timedelta(minutes=9))
            assert add_job("report", unique=option).existed
            moving.advance(timedelta(minutes=2))
            assert not add_job("report", unique=option).existed


class TestManyAndTransactions:
    @pytest.mark.parametrize("returning", [True, False])
    def test_add_jobs_decides_for_each_spec(self, returning: bool) -> None:
        waiting = add_job("report", {"n": 1}, unique=True)
        specs = [
            JobSpec("report", {"n": 1}, unique=True),
            JobSpec("plain"),
            JobSpec("report", {"n": 2}, unique=True),
            JobSpec("report", {"n": 2}, unique=True),
            JobSpec("keyed", job_key="k"),
        ]
        added = add_jobs(specs, returning=returning)
        assert models.Job.objects.count() == 4
        if isinstance(added, list):
            assert added[0].id == waiting.id
            assert [job.existed for job in added] == [True, False, False, True, False]
            assert added[2].id == added[3].id

    def test_a_rollback_takes_the_entry_with_it(self, worker_schema: str) -> None:
        with transaction.atomic():
            add_job("report", unique=True)
            transaction.set_rollback(True)
        assert entries(worker_schema) == 0
        assert not add_job("report", unique=True).existed

    def test_jobs_that_are_there_are_read_together(self) -> None:
        specs = [JobSpec("report", {"shop": number}, unique=True) for number in range(50)]
        first = add_jobs(specs)
        with CaptureQueriesContext(connection) as queries:
            again = add_jobs(specs)
        assert again == first
        # To add, to read the jobs, and to read the names of their tasks and queues.
        assert len([each for each in queries.captured_queries if "gw:" in each["sql"]]) == 3

    def test_a_task_with_a_job_key_and_unique_is_refused_where_it_is_defined(self) -> None:
        with pytest.raises(InvalidJobError, match="either a job_key or unique"):
            task("report", job_key="k", unique=True)

    @pytest.mark.parametrize("value", [5, b"k", {"key": "k"}])
    def test_other_values_are_refused(self, value: Any) -> None:
        with pytest.raises(InvalidTypeError, match=r"^unique: expected True, False, a key \(str\) or Unique\("):
            add_job("report", unique=value)
        with pytest.raises(InvalidJobError, match="either a job_key or unique"):
            add_job("report", unique=True, job_key="k")
        with pytest.raises(InvalidJobError, match=r"^unique key: expected"):
            add_job("report", unique="")
        with pytest.raises(InvalidTypeError, match=r"^Unique\(for_=\.\.\.\): expected"):
            Unique(for_="5")  # type: ignore[arg-type]


class TestInTests:
    def test_run_jobs_runs_it_once(self) -> None:
        ran = []
        with tasks.isolated():

            @task(unique=True)
            def report(payload: Any) -> None:
                ran.append(payload)
                # It runs, so it counts.
                assert report.add_job(payload).existed

            report.add_job({"n": 1})
            report.add_job({"n": 1})
            run_jobs()
            assert ran == [{"n": 1}]
            report.add_job({"n": 1})
            run_jobs()
            assert len(ran) == 2


class TestForgetting:
    def test_entries_of_ended_jobs_are_deleted__those_of_others_stay(
        self, worker_schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adding, "MAX_FORGOTTEN", 2)
        jobs = add_jobs([JobSpec("report", {"n": n}, unique=True) for n in range(5)])
        complete_jobs(jobs[1:4])
        permanently_fail_jobs(jobs[4])
        with connection.cursor() as cursor:
            assert not forget_unique_jobs(cursor, schema=worker_schema), "it is too early"
            assert entries(worker_schema) == 5
            cursor.execute(f"update {worker_schema}._private_unique_jobs set until = now() - interval '1 second'")
            looks = [forget_unique_jobs(cursor, schema=worker_schema) for _ in range(3)]
        assert looks == [True, True, False]
        assert entries(worker_schema) == 1
        assert add_job("report", {"n": 0}, unique=True).id == jobs[0].id


ENTRY = (JobSpec("report", unique="k"), "{}")
COUNT = "select count(*) from graphile_worker._private_jobs"


def add(connection: Connection) -> list[Job]:
    with connection.cursor() as cursor:
        return add_unique_jobs(cursor, [ENTRY], schema="graphile_worker")


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_of_two_at_once__the_second_waits_for_the_first(versioned_database: str, ending: str) -> None:
    """On each version: never two jobs, and never none."""
    with Stage(lambda: psycopg.connect(versioned_database)) as stage:
        first, second = stage.session(), stage.session()
        (one,) = first.start(add).result()
        waiting = second.start(add)
        assert second.is_waiting
        first.start(lambda connection: getattr(connection, ending)())
        second.settle()
        (two,) = waiting.result()
        second.start(lambda connection: connection.commit())
        count = second.start(lambda connection: connection.execute(COUNT).fetchone()[0]).result()  # type: ignore[index]
    assert count == 1
    assert two.existed is (ending == "commit")
    assert (two.id == one.id) is two.existed


def test_two_batches_in_opposite_order_do_not_wait_for_each_other(versioned_database: str) -> None:
    specs = [(JobSpec("report", unique=str(n)), "{}") for n in range(100)]

    def add_all(order: int) -> list[bool]:
        with psycopg.connect(versioned_database) as own, own.cursor() as cursor:
            return [job.existed for job in add_unique_jobs(cursor, specs[::order], schema="graphile_worker")]

    with ThreadPoolExecutor() as threads:
        results = list(threads.map(add_all, [1, -1] * 4))
    assert sum(not existed for result in results for existed in result) == 100


def test_adders_and_enders_at_once__never_two(versioned_database: str) -> None:
    """Jobs end while others are added, entries are forgotten, and transactions are rolled back."""
    rounds = 30

    def keep_adding(number: int) -> None:
        with psycopg.connect(versioned_database) as own:
            for turn in range(rounds):
                add(own)
                # The job may have ended at this moment.
                assert (own.execute(COUNT).fetchone() or (9,))[0] <= 1
                if (turn + number) % 3:
                    own.commit()
                else:
                    own.rollback()

    def end() -> None:
        with psycopg.connect(versioned_database, autocommit=True) as own, own.cursor() as cursor:
            for _ in range(rounds):
                cursor.execute("delete from graphile_worker._private_jobs")
                cursor.execute("update graphile_worker._private_unique_jobs set until = '-infinity'")
                forget_unique_jobs(cursor, schema="graphile_worker")

    with ThreadPoolExecutor() as threads:
        running = [threads.submit(keep_adding, number) for number in range(3)]
        running.append(threads.submit(end))
        for each in running:
            each.result()
