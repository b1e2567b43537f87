"""Immediate mode: jobs run at the end of the outermost transaction of the code under test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_graphile_worker import JobSpec, add_job, add_jobs, run_once
from django_graphile_worker.exceptions import GraphileWorkerError, PayloadError, UnknownTaskError
from django_graphile_worker.testing import clock, immediate, jobs
from tests.support.own_schema import SCHEMA
from tests.support.stepped_worker import own_tasks

ON = override_settings(GRAPHILE_WORKER={**SCHEMA, "IMMEDIATE": True})


class Log(list[Any]):
    """A list that is also a task."""

    __name__ = "log"

    def __call__(self, payload: Any) -> str:
        self.append(payload)
        return f"logged {payload}"


class ImmediateTests:
    """The same in the transaction of a TestCase, and in autocommit mode."""

    def test_outside_a_transaction__a_job_runs_at_once(self) -> None:
        with own_tasks(log := Log()), immediate() as ran:
            add_job("log", 1)
            assert log == [1]
            add_jobs([JobSpec("log", 2), JobSpec("log", 3)])
            assert add_jobs([JobSpec("log", 4)], returning=False) == 1
        assert log == [1, 2, 3, 4]
        assert [each.result for each in ran] == [f"logged {number}" for number in log]
        assert jobs() == []

    def test_in_a_transaction__it_runs_at_the_end_of_the_outermost(self) -> None:
        with own_tasks(log := Log()), immediate():
            with transaction.atomic():
                add_job("log", "outer")
                with transaction.atomic():
                    add_job("log", "inner")
                with transaction.atomic(savepoint=False):
                    add_job("log", "without a savepoint")
                assert log == []
            assert log == ["outer", "inner", "without a savepoint"]
            with transaction.atomic():
                add_job("log", "next")
            assert log[-1] == "next"

    def test_transaction_that_is_rolled_back__runs_nothing(self) -> None:
        with own_tasks(log := Log()), immediate():
            with pytest.raises(ValueError), transaction.atomic():
                add_job("log")
                raise ValueError
            with transaction.atomic():
                add_job("log", "kept")
                with pytest.raises(ValueError), transaction.atomic():
                    add_job("log", "undone")
                    raise ValueError
        assert log == ["kept"]
        assert not {"savepoint_commit", "savepoint_rollback"} & vars(connection).keys()

    def test_jobs_that_jobs_add__run_after_them(self) -> None:
        order: list[str] = []

        def parent(payload: Any) -> None:
            add_job("child")
            with transaction.atomic():
                add_job("child")
            order.append("parent")

        def child(payload: Any) -> None:
            order.append("child")

        with own_tasks(parent, child), immediate():
            add_job("parent")
        assert order == ["parent", "child", "child"]

    def test_scheduled_jobs__wait(self) -> None:
        with own_tasks(log := Log()), immediate():
            add_job("log", run_at=timedelta(hours=1))
            assert log == []
            assert len(jobs()) == 1

    def test_failures__are_raised_where_the_transaction_ends(self) -> None:
        def fails(payload: Any) -> None:
            raise LookupError("no such order")

        def violates(payload: Any) -> None:
            User.objects.create(username="ann")

        with own_tasks(fails, violates), immediate():
            with pytest.raises(LookupError, match="no such order"), transaction.atomic():
                User.objects.create(username="ann")
                add_job("fails")
            assert User.objects.count() == 1
            with pytest.raises((IntegrityError, GraphileWorkerError), match="duplicate key"), transaction.atomic():
                add_job("violates")
            assert User.objects.count() == 1

    def test_failed_retries__are_logged_and_not_raised_where_other_jobs_are_added(self) -> None:
        def fails(payload: Any) -> None:
            raise LookupError("no such order")

        with own_tasks(fails, log := Log()), clock() as now, immediate() as ran:
            with pytest.raises(LookupError) as raised:
                add_job("fails")
            assert raised.value.__notes__[0].endswith(
                "attempt 1 of 25. Immediate mode raises it where the transaction ended that added the job. "
                "The job stays, and is retried."
            )
            now.advance(hours=1)
            with TestCase().assertLogs("django_graphile_worker.testing", "WARNING") as logged:
                add_job("log", "unrelated")
            assert log == ["unrelated"]
            assert [(each.task_identifier, each.outcome) for each in ran] == [("fails", "failed"), ("log", "succeeded")]
            assert [job.attempts for job in jobs("fails")] == [2]
        (line,) = logged.output
        assert "attempt 2 of 25 of job" in line
        assert line.endswith("an earlier transaction has added the job: LookupError('no such order')")

    def test_what_could_not_work_in_production__is_refused(self) -> None:
        with own_tasks(log := Log()), immediate():
            with pytest.raises(UnknownTaskError, match=r"this project has no task 'lgo'\. Did you mean 'log'"):
                add_job("lgo")
            with pytest.raises(UnknownTaskError, match=r"no task 'nothing'\. Register it with @task"):
                add_jobs([JobSpec("log"), JobSpec("nothing")])
            with pytest.raises(PayloadError, match=r"\$\.at"):
                add_job("log", {"at": object()})
        assert log == []
        assert jobs() == []

    @ON
    def test_the_setting(self) -> None:
        with own_tasks(log := Log()):
            with transaction.atomic():
                add_job("log", 1)
                assert log == []
            assert log == [1]
            with pytest.raises(UnknownTaskError):
                add_job("unknown")


class TestInTransaction(ImmediateTests, TestCase):
    def test_with_captured_hooks__once(self) -> None:
        with own_tasks(log := Log()), immediate(), self.captureOnCommitCallbacks(execute=True):
            with transaction.atomic():
                add_job("log", 1)
            transaction.on_commit(lambda: add_job("log", 2))
        assert log == [1, 2]


class TestSeveralDatabases(TestCase):
    databases = {"default", "other"}

    def test_job_of_another_queue__runs_after_the_job_that_added_it(self) -> None:
        order: list[str] = []

        def parent(payload: Any) -> None:
            add_job("child", using="other")
            order.append("parent")

        def child(payload: Any) -> None:
            order.append("child")

        with own_tasks(parent, child), immediate():
            add_job("parent")
        assert order == ["parent", "child"]


class TestInAutocommitMode(ImmediateTests, TransactionTestCase):
    @ON
    def test_a_worker__runs_the_jobs_of_its_jobs_itself(self) -> None:
        order: list[str] = []

        def parent(payload: Any) -> None:
            add_job("child")
            order.append("parent")

        def child(payload: Any) -> None:
            order.append("child")

        with own_tasks(parent, child):
            with override_settings(GRAPHILE_WORKER=SCHEMA):
                add_job("parent")
            assert run_once() == 0
        assert order == ["parent", "child"]
