"""``django_graphile_worker.testing``: what a project's own tests need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import transaction
from django.test import TransactionTestCase

from django_graphile_worker import JobSpec, add_job, add_jobs, models
from django_graphile_worker.sql import cleanup, workers
from django_graphile_worker.testing import clear_queue
from tests.conftest import RawConnection
from tests.support.factories import make_job


@pytest.mark.django_db(transaction=True)
class TestClearQueue:
    def test_everything_that_happened_is_gone(
        self, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        make_job("running", queue_name="mail", locked_by="somebody", attempts=1)
        make_job("failed", attempts=25)
        add_jobs([JobSpec("waiting"), JobSpec("keyed", job_key="a")])
        with raw_connection().cursor() as cursor:
            workers.register_worker(cursor, f"{workers.WORKER_PREFIX}1", {}, schema=worker_schema)
            cursor.execute(
                f'insert into "{worker_schema}"._private_known_crontabs (identifier, known_since)'
                " values ('nightly', now())".encode()
            )
        assert clear_queue() == 4
        for model in (models.Job, models.JobQueue, models.KnownCrontab, models.Worker):
            assert not model.objects.exists()
        # Names are no events: a worker that runs knows its tasks by their ids.
        assert models.Task.objects.filter(identifier="keyed").exists()
        assert clear_queue() == 0

    def test_every_table_is_emptied_but_names_and_records_of_the_installation(
        self, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        rows = raw_connection().execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p')"
            " and not relispartition",
            [f'"{worker_schema}"'],
        )
        others = {name for (name,) in rows} - set(cleanup.EMPTIED_TABLES)
        assert others == {"migrations", "_private_installation", "_private_tasks"}

    def test_it_belongs_to_the_transaction_around_it(self) -> None:
        add_job("waiting")
        with transaction.atomic():
            assert clear_queue() == 1
            transaction.set_rollback(True)
        assert models.Job.objects.count() == 1
        clear_queue()


class TestFlush(TransactionTestCase):
    """Django flushes the tables of its models after each test that commits."""

    def test_flush_in_a_test_run__empties_the_queue(self) -> None:
        add_job("waiting")
        call_command("flush", verbosity=0, interactive=False)
        assert not models.Job.objects.exists()

    def test_flush_outside_a_test_run__keeps_the_jobs(self) -> None:
        add_job("waiting")
        outbox = mail.__dict__.pop("outbox")
        try:
            call_command("flush", verbosity=0, interactive=False)
        finally:
            mail.__dict__["outbox"] = outbox
        assert models.Job.objects.count() == 1


@pytest.fixture
def clean_worker_tables() -> None:
    """Not here: what this suite does for itself would hide what is tested."""


def test_without_a_database__the_guard_speaks() -> None:
    def clear() -> Any:
        return clear_queue()

    with pytest.raises(RuntimeError, match="Database access not allowed"):
        clear()
