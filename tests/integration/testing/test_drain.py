"""``run_jobs()`` in a TestCase: what runs, in which order, and what becomes of failures."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import DataError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from django_graphile_worker import (
    Helpers,
    JobSpec,
    RetryLater,
    add_job,
    add_jobs,
    conf,
    get_job,
    models,
    remove_job,
    result,
    signals,
)
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidTypeError
from django_graphile_worker.results import ResultStatus
from django_graphile_worker.sql.statements import table
from django_graphile_worker.testing import arun_jobs, clock, jobs, run_jobs
from tests.support.factories import make_job
from tests.support.own_schema import SCHEMA
from tests.support.stepped_worker import own_tasks


class Log(list[Any]):
    """A list that is also a task."""

    __name__ = "log"

    def __call__(self, payload: Any) -> None:
        self.append(payload)


def fails(payload: Any) -> None:
    raise ValueError(f"no order {payload}")


class TestLog(TestCase):
    def test_job_that_fails__is_logged_but_not_printed(self) -> None:
        """Without a handler of the project, Python would print a traceback for each attempt of three days."""
        printed: list[logging.LogRecord] = []
        last_resort = mock.Mock(level=logging.WARNING, handle=printed.append)
        # pytest has handlers, which a project with Django's runner has not.
        with own_tasks(fails), mock.patch.object(logging, "lastResort", last_resort):
            with mock.patch.object(logging.getLogger(), "handlers", []):
                add_job("fails", 1)
                run_jobs(on_error="record")
            assert printed == []
            with self.assertLogs("django_graphile_worker.jobs", "WARNING") as seen:
                add_job("fails", 2)
                run_jobs(on_error="record")
        assert "no order 2" in seen.output[0]


class TestWhatRuns(TestCase):
    def test_a_job__runs_once_and_is_gone(self) -> None:
        def double(payload: int) -> int:
            return 2 * payload

        with own_tasks(double):
            job = add_job("double", 21)
            (ran,) = run_jobs()
            assert (ran.job.id, ran.task_identifier, ran.payload) == (job.id, "double", 21)
            assert (ran.outcome, ran.result, ran.error, ran.succeeded) == ("succeeded", 42, None, True)
            assert ran.job.attempts == 1
            assert run_jobs() == []
        assert get_job(job.id) is None

    def test_order__is_that_of_a_worker(self) -> None:
        with own_tasks(log := Log()):
            add_job("log", "late", run_at=timedelta(days=-1))
            add_job("log", "unimportant", priority=5)
            add_job("log", "second", run_at=timedelta(days=-2))
            add_job("log", "queued", queue_name="mail", run_at=timedelta(days=-3))
            add_job("log", "queued last", queue_name="mail")
            add_job("log", "urgent", priority=-5)
            run_jobs()
        assert log == ["urgent", "queued", "second", "late", "queued last", "unimportant"]

    def test_jobs_that_jobs_add__run_too_in_their_order(self) -> None:
        log: list[str] = []

        def parent(payload: Any) -> None:
            log.append("parent")
            add_job("child", priority=-1)

        def child(payload: Any) -> None:
            log.append("child")

        with own_tasks(parent, child):
            add_jobs([JobSpec("parent"), JobSpec("parent")])
            assert [ran.task_identifier for ran in run_jobs()] == ["parent", "child", "parent", "child"]
        assert log == ["parent", "child", "parent", "child"]

    def test_jobs_of_the_future__wait(self) -> None:
        with own_tasks(log := Log()):
            add_job("log", run_at=timedelta(seconds=90))
            assert run_jobs() == []
            assert len(jobs()) == 1
            assert log == []

    def test_job_that_is_due_by_the_clock_of_python__runs(self) -> None:
        """In the transaction of a test ``now()`` is the time at which the class began."""
        with own_tasks(log := Log()):
            add_job("log", run_at=timezone.now())
            run_jobs()
        assert log == [{}]

    def test_jobs_of_unknown_tasks__wait(self) -> None:
        add_job("somebody_elses")
        with own_tasks(log := Log()):
            add_job("log", priority=5)
            assert len(run_jobs()) == 1
        assert [job.task_identifier for job in jobs()] == ["somebody_elses"]
        assert log == [{}]

    def test_job_that_another_removes__does_not_run(self) -> None:
        def removes(payload: Any) -> None:
            assert remove_job("other") is not None

        with own_tasks(removes):
            add_job("removes")
            add_job("removes", job_key="other")
            assert len(run_jobs()) == 1
            assert jobs() == []

    def test_locked_jobs_and_queues__are_left_alone(self) -> None:
        with own_tasks(log := Log()):
            make_job("log", payload={"by": "other"}, locked_by="somebody", attempts=1)
            add_job("log", "free")
            run_jobs()
            assert log == ["free"]


class TestSeveralDatabases(TestCase):
    databases = {"default", "other"}

    def test_each_has_its_own_jobs(self) -> None:
        def creates(payload: Any, helpers: Helpers) -> None:
            User.objects.using(helpers.using).create(username="ann")
            User.objects.using("default").create(username="bob")

        with own_tasks(creates):
            add_job("creates", using="other")
            assert run_jobs() == []
            (ran,) = run_jobs(using="other")
            assert ran.succeeded
        assert not jobs(using="other")
        assert User.objects.using("other").get().username == "ann"
        assert User.objects.get().username == "bob"


class TestAsInProduction(TestCase):
    """Middleware, signals, typed payloads, helpers, batches and coroutines."""

    def test_coroutines__use_the_connection_of_the_test(self) -> None:
        async def creates(payload: Any) -> str:
            await asyncio.sleep(0)
            user = await User.objects.acreate(username="ann")
            return await sync_to_async(lambda: User.objects.get(pk=user.pk).username)()

        with own_tasks(creates):
            add_job("creates")
            (ran,) = run_jobs()
        assert ran.result == "ann"
        assert User.objects.get().username == "ann"

    def test_signals__arrive_in_order_before_run_jobs_returns(self) -> None:
        heard: list[str] = []
        named = {
            name: getattr(signals, name)
            for name in ("jobs_claimed", "job_started", "job_succeeded", "job_failed", "job_released")
        }
        receivers: dict[str, Callable[..., None]] = {}
        for name, signal in named.items():
            receivers[name] = lambda name=name, **kwargs: heard.append(name)
            signal.connect(receivers[name])
        try:
            with own_tasks(log := Log(), fails):
                add_job("log")
                run_jobs()
                add_job("fails")
                run_jobs(on_error="record")
        finally:
            for name, signal in named.items():
                signal.disconnect(receivers[name])
        assert heard == [
            *("jobs_claimed", "job_started", "job_succeeded", "job_released"),
            *("jobs_claimed", "job_started", "job_failed", "job_released"),
        ]
        assert len(log) == 1

    def test_results_history_and_progress__are_kept(self) -> None:
        seen: list[Any] = []

        def exports(payload: Any, helpers: Helpers) -> str:
            helpers.progress(1, 2, "half")
            running = result(helpers.job.id)
            seen.append(running and running.progress)
            return "done"

        settings = {**SCHEMA, "HISTORY": timedelta(days=1)}
        with override_settings(GRAPHILE_WORKER=settings), own_tasks(exports, keep_result=True):
            job = add_job("exports")
            run_jobs()
            kept = result(job.id)
            assert kept is not None
            assert (kept.status, kept.value) == (ResultStatus.SUCCEEDED, "done")
            with connection.cursor() as cursor:
                cursor.execute(f"select count(*) from {table('_private_history', conf.current().schema)}")
                assert cursor.fetchone() == (1,)
        assert [(each.done, each.total, each.message) for each in seen] == [(1, 2, "half")]


class TestFailures(TestCase):
    def test_the_exception_of_the_job__is_raised_with_its_traceback(self) -> None:
        with own_tasks(fails):
            job = add_job("fails", 7)
            with pytest.raises(ValueError, match="no order 7") as caught:
                run_jobs()
        assert caught.type is ValueError
        frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
        assert frames[0] == "test_the_exception_of_the_job__is_raised_with_its_traceback"
        assert frames[-2:] == ["_run_one", "fails"]
        assert f"Raised by job {job.id}, fails, attempt 1 of 25." in caught.value.__notes__[0]
        (waiting,) = jobs()
        assert (waiting.attempts, waiting.locked_at) == (1, None)
        assert str(waiting.last_error).startswith("ValueError: no order 7")
        assert "django_graphile_worker/" not in str(waiting.last_error)

    def test_record__keeps_it_and_goes_on(self) -> None:
        with own_tasks(fails, log := Log()):
            add_job("fails", 7, priority=-1)
            add_job("log", "next")
            failed, succeeded = run_jobs(on_error="record")
        assert (failed.outcome, type(failed.error)) == ("failed", ValueError)
        assert failed.retry_in == pytest.approx(2.718, abs=0.01)
        assert succeeded.outcome == "succeeded"
        assert log == ["next"]

    def test_retry_at_once__is_repeated_until_the_attempts_are_used_up(self) -> None:
        def again(payload: Any) -> None:
            raise RetryLater(0)

        with own_tasks(again):
            add_job("again", max_attempts=3)
            ran = run_jobs(on_error="record")
        assert [each.outcome for each in ran] == ["failed", "failed", "permanently failed"]

    def test_error_that_the_database_cannot_store__leaves_the_test_usable(self) -> None:
        def nul(payload: Any) -> list[Any]:
            raise ValueError("a\x00b \ud800")

        with own_tasks(nul):
            add_job("nul")
            (ran,) = run_jobs(on_error="record")
            assert ran.outcome == "failed"
            assert jobs()[0].last_error

    def test_keyboard_interrupt_and_outcomes_of_pytest__end_the_test(self) -> None:
        def interrupted(payload: Any) -> None:
            raise KeyboardInterrupt

        def skips(payload: Any) -> None:
            pytest.skip("not here")

        with own_tasks(interrupted, skips):
            add_job("interrupted", max_attempts=1)
            with pytest.raises(KeyboardInterrupt):
                run_jobs(on_error="record")
            add_job("skips", max_attempts=1)
            with pytest.raises(pytest.skip.Exception, match="not here"):
                run_jobs(on_error="record")

    def test_a_job_that_adds_itself__meets_the_limit(self) -> None:
        def endless(payload: Any) -> None:
            add_job("endless")

        with own_tasks(endless):
            add_job("endless")
            with pytest.raises(
                GraphileWorkerError, match=r"has run 7 jobs, and there are more; the last were of endless"
            ):
                run_jobs(limit=7)
            (waiting,) = jobs()
        assert (waiting.attempts, waiting.locked_at) == (0, None)

    def test_run_jobs_inside_a_job__is_refused(self) -> None:
        async def runs_async(payload: Any) -> None:
            await arun_jobs()

        def runs(payload: Any) -> None:
            run_jobs()

        with own_tasks(runs, runs_async):
            for name in ("runs", "runs_async"):
                add_job(name, max_attempts=1)
                with pytest.raises(GraphileWorkerError, match=rf"was called inside a job \({name} #"):
                    run_jobs()

    def test_transaction_that_has_failed__is_named(self) -> None:
        with own_tasks(Log()):
            add_job("log")
            with pytest.raises(TransactionManagementError, match="a statement has failed in this transaction"):
                with transaction.atomic():
                    with pytest.raises(DataError), connection.cursor() as cursor:
                        cursor.execute("select 1 / 0")
                    run_jobs()
            with transaction.atomic():
                transaction.set_rollback(True)
                with pytest.raises(TransactionManagementError, match="An error occurred in the current transaction"):
                    run_jobs()
            assert len(run_jobs()) == 1

    def test_bad_arguments__are_refused(self) -> None:
        with pytest.raises(InvalidTypeError, match="expected 'raise' or 'record', got 'ignore'"):
            run_jobs(on_error="ignore")  # type: ignore[arg-type]
        for limit in (0, True, 1.5):
            with pytest.raises(InvalidTypeError, match="limit: expected a number of jobs"):
                run_jobs(limit=limit)  # type: ignore[arg-type]


class TestBesideWorkers(TransactionTestCase):
    def test_job_that_another_transaction_has_locked__is_left_to_it(self) -> None:
        other = connections.create_connection("default")
        try:
            with own_tasks(log := Log()), clock() as now:
                job = add_job("log", "locked", queue_name="a queue")
                add_job("log", "free")
                with other.cursor() as cursor:
                    other.set_autocommit(False)
                    cursor.execute(f"select from {models.Job._meta.db_table} where id = %s for update", [job.id])
                    now.advance(days=1)
                    with pytest.raises(GraphileWorkerError, match="another transaction has locked a job"):
                        run_jobs()
                    other.rollback()
                run_jobs()
            assert log == ["free", "locked"]
        finally:
            other.close()


class TestWithoutDatabase(SimpleTestCase):
    def test_the_guard_speaks(self) -> None:
        with pytest.raises(Exception, match=r"Database (queries|access)"):
            run_jobs()


class TestAsync(TestCase):
    async def test_async_tests(self) -> None:
        def creates(payload: Any) -> None:
            User.objects.create(username="ann")

        with own_tasks(creates):
            add = sync_to_async(add_job)
            await add("creates")
            (ran,) = await arun_jobs()
        assert ran.succeeded
        assert await User.objects.acount() == 1
