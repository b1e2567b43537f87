"""Recurring tasks on the clock of a test."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import TestCase, override_settings
from django.utils import timezone

from django_graphile_worker import CronItem, add_job, task
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import clock, run_jobs
from tests.support.own_schema import SCHEMA
from tests.support.stepped_worker import own_tasks

START = datetime(2030, 1, 1, tzinfo=UTC)


class Ticks(list[tuple[datetime, str]]):
    """A task that records when it runs, and for which tick."""

    __name__ = "ticks"

    def __call__(self, payload: Any) -> None:
        self.append((timezone.now(), payload["_cron"]["ts"]))

    @property
    def times(self) -> list[datetime]:
        return [moment for moment, _ in self]


class TestCron(TestCase):
    def test_a_month__takes_less_than_a_second(self) -> None:
        with own_tasks(ticks := Ticks(), cron="0 4 * * *"), clock(START) as now:
            now.advance(days=30)
            began = time.thread_time()
            ran = run_jobs()
            assert time.thread_time() - began < 1
        assert len(ran) == 30
        assert ticks.times == [START + timedelta(days=day, hours=4) for day in range(30)]
        assert ticks[0][1] == "2030-01-01T04:00:00.000Z"

    def test_each_tick__once_in_several_calls(self) -> None:
        with own_tasks(ticks := Ticks(), cron="*/10 * * * *"), clock(START + timedelta(seconds=1)) as now:
            for _ in range(6):
                now.advance(minutes=15)
                run_jobs()
        assert ticks.times == [START + timedelta(minutes=10 * number) for number in range(1, 10)]

    def test_too_many_ticks__meet_the_limit(self) -> None:
        with own_tasks(Ticks(), cron="* * * * *"), clock(START) as now:
            now.advance(days=1)
            with pytest.raises(
                GraphileWorkerError, match=r"has run 5 jobs, and there are more; .* recurring tasks .*cron=False"
            ):
                run_jobs(limit=5)

    def test_the_setting__and_items_with_callables(self) -> None:
        item = CronItem(task="ticks", match=lambda local: local.hour == 3 and local.minute == 30)
        crontab = {**SCHEMA, "CRONTAB": ["0 6 * * * ticks ?id=six", item]}
        with override_settings(GRAPHILE_WORKER=crontab), own_tasks(ticks := Ticks()), clock(START) as now:
            now.advance(days=2)
            run_jobs()
        hours = [moment.hour + moment.minute / 60 for moment in ticks.times]
        assert hours == [3.5, 6, 3.5, 6]

    def test_other_jobs_and_retries__keep_their_time_among_the_ticks(self) -> None:
        order: list[str] = []

        def both(payload: Any) -> None:
            order.append(f"{'tick' if '_cron' in payload else 'job'} {timezone.now():%H:%M}")
            if len(order) == 1:
                raise ValueError

        with own_tasks(both, cron="0 * * * *"), clock(START + timedelta(minutes=30)) as now:
            add_job("both", run_at=timedelta(hours=1))
            now.advance(hours=2)
            run_jobs(on_error="record")
        assert order == ["tick 01:00", "tick 01:00", "job 01:30", "tick 02:00"]

    def test_ticks_that_the_database_refuses__fail_the_test_with_the_first_error(self) -> None:
        jobs = f'"{SCHEMA["SCHEMA"]}"._private_jobs'
        refuse = f"""create function public.refuse_job() returns trigger language plpgsql as $$ begin
            insert into audit_table_that_is_gone values (1);
        end $$;
        create trigger refuse_job before insert on {jobs} for each row execute function public.refuse_job()"""
        for number in (1, 3):
            with tasks.isolated(), transaction.atomic():
                for each in range(number):
                    task(f"task {each}", cron="* * * * *")(Ticks())
                with connection.cursor() as cursor:
                    cursor.execute(refuse)
                with clock(START) as now, pytest.raises(psycopg.errors.UndefinedTable, match="audit_table"):
                    now.advance(minutes=1)
                    run_jobs()
                transaction.set_rollback(True)

    def test_settings_of_the_transaction__are_kept(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("set local lock_timeout = '7s'")
            with own_tasks(Ticks(), cron="0 * * * *"), clock(START) as now:
                now.advance(hours=1)
                run_jobs()
            cursor.execute("show lock_timeout")
            assert cursor.fetchone() == ("7s",)
