"""A job in the transaction of a test finds the connection as it finds it in a worker."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, TransactionTestCase

from django_graphile_worker import add_job, signals
from django_graphile_worker.exceptions import LeftoverStateError
from django_graphile_worker.testing import jobs, run_jobs
from tests.support.stepped_worker import own_tasks


def names() -> list[str]:
    return sorted(User.objects.values_list("username", flat=True))


class JobTests:
    """The same in the transaction of a TestCase, and in autocommit mode."""

    def run_job(self, task: Any, *, error: type[BaseException] | None = None, **options: Any) -> Any:
        with own_tasks(task, **options):
            add_job(task.__name__)
            (ran,) = run_jobs(on_error="record")
        assert type(ran.error) is (error or type(None)), ran
        return ran.result

    def test_statement_that_fails__undoes_only_itself(self) -> None:
        def task(payload: Any) -> None:
            User.objects.create(username="ann")
            with pytest.raises(IntegrityError):
                User.objects.create(username="ann")
            User.objects.create(username="bob")

        self.run_job(task)
        assert names() == ["ann", "bob"]

    def test_job_that_fails__keeps_what_it_has_committed(self) -> None:
        def task(payload: Any) -> None:
            User.objects.create(username="ann")
            with transaction.atomic():
                User.objects.create(username="bob")
                User.objects.create(username="ann")

        self.run_job(task, error=IntegrityError)
        assert names() == ["ann"]

    def test_atomic_blocks__nest_and_roll_back(self) -> None:
        def task(payload: Any) -> None:
            with transaction.atomic(durable=True):
                User.objects.create(username="ann")
                with pytest.raises(ValueError), transaction.atomic():
                    User.objects.create(username="bob")
                    raise ValueError
                with pytest.raises(IntegrityError), transaction.atomic():
                    User.objects.create(username="ann")
                User.objects.create(username="cid")
            with pytest.raises(ValueError), transaction.atomic():
                User.objects.create(username="dan")
                raise ValueError

        self.run_job(task)
        assert names() == ["ann", "cid"]

    def test_hooks__are_called_when_the_transaction_of_the_job_ends(self) -> None:
        calls: list[str] = []

        def task(payload: Any) -> None:
            transaction.on_commit(lambda: calls.append("at once"))
            calls.append("first")
            with transaction.atomic():
                transaction.on_commit(lambda: calls.append("hook"))
                with pytest.raises(ValueError), transaction.atomic():
                    transaction.on_commit(lambda: calls.append("never"))
                    raise ValueError
                calls.append("inside")
            calls.append("after")

        self.run_job(task)
        assert calls == ["at once", "first", "inside", "hook", "after"]

    def test_select_for_update__needs_a_transaction(self) -> None:
        def task(payload: Any) -> None:
            with pytest.raises(TransactionManagementError):
                User.objects.select_for_update().first()
            with transaction.atomic():
                User.objects.select_for_update().first()
            assert not connection.in_atomic_block
            assert transaction.get_autocommit()

        self.run_job(task)

    def test_atomic_task__is_all_or_nothing(self) -> None:
        def task(payload: Any) -> None:
            User.objects.create(username="ann")
            raise ValueError

        self.run_job(task, error=ValueError, atomic=True)
        assert names() == []
        assert len(jobs()) == 1

    def test_atomic_task_that_succeeds__calls_its_hooks(self) -> None:
        calls: list[str] = []

        def task(payload: Any) -> str:
            User.objects.create(username="ann")
            transaction.on_commit(lambda: calls.append("hook"))
            return "done"

        assert self.run_job(task, atomic=True) == "done"
        assert (names(), calls, jobs()) == (["ann"], ["hook"], [])

    def test_transaction_left_open__fails_the_job_and_is_rolled_back(self) -> None:
        def task(payload: Any) -> None:
            User.objects.create(username="ann")
            transaction.atomic().__enter__()
            User.objects.create(username="bob")

        self.run_job(task, error=LeftoverStateError)
        assert names() == ["ann"]

    def test_transactions_by_hand(self) -> None:
        def task(payload: Any) -> None:
            transaction.set_autocommit(False)
            try:
                User.objects.create(username="ann")
                transaction.commit()
                User.objects.create(username="bob")
                transaction.rollback()
            finally:
                transaction.set_autocommit(True)
            User.objects.create(username="cid")

        self.run_job(task)
        assert names() == ["ann", "cid"]


class TestInTransaction(JobTests, TestCase):
    def test_hooks_of_the_test__stay_with_the_test(self) -> None:
        calls: list[str] = []

        def task(payload: Any) -> None:
            transaction.on_commit(lambda: calls.append("job"))

        with self.captureOnCommitCallbacks() as captured:
            transaction.on_commit(lambda: calls.append("test"))
            self.run_job(task)
            assert calls == ["job"]
        (hook,) = captured
        hook()
        assert calls == ["job", "test"]

    def test_the_connection__is_restored(self) -> None:
        before = dict(vars(connection))
        wrappers = list(connection.execute_wrappers)

        def task(payload: Any) -> None:
            with transaction.atomic():
                User.objects.create(username="ann")

        self.run_job(task)
        self.run_job(task, error=IntegrityError)
        changed = {name for name, value in vars(connection).items() if before.get(name, name) != value}
        assert changed <= {"savepoint_state", "queries_log"}, changed
        assert connection.execute_wrappers == wrappers
        assert connection.in_atomic_block

    def test_transaction_that_a_receiver_leaves_open__is_rolled_back(self) -> None:
        def leaves(**kwargs: Any) -> None:
            transaction.atomic().__enter__()
            User.objects.create(username="ann")

        def task(payload: Any) -> None:
            User.objects.create(username="bob")

        signals.job_succeeded.connect(leaves)
        try:
            self.run_job(task)
        finally:
            signals.job_succeeded.disconnect(leaves)
        assert names() == ["bob"]

    def test_inside_a_block_of_the_test__the_block_decides(self) -> None:
        def task(payload: Any) -> None:
            User.objects.create(username="ann")

        with transaction.atomic():
            self.run_job(task)
            transaction.set_rollback(True)
        assert names() == []


class TestInAutocommitMode(JobTests, TransactionTestCase):
    def test_the_connection__stays_open(self) -> None:
        def task(payload: Any) -> int:
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                return int(cursor.fetchone()[0])

        assert self.run_job(task) == self.run_job(task)
