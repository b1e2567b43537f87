"""Schedules of the database on the clock of a test."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import TestCase, TransactionTestCase

from django_graphile_worker.models import Job, Schedule
from django_graphile_worker.testing import clock, run_jobs
from tests.integration.testing.test_cron_ticks import Ticks
from tests.support.stepped_worker import own_tasks

START = datetime(2030, 1, 1, tzinfo=UTC)


def make(**values: Any) -> Schedule:
    return Schedule.objects.create(**{"name": "often", "task": "ticks", "cron": "0 4 * * *"} | values)


class TestSchedules(TestCase):
    def test_a_month__takes_less_than_a_second(self) -> None:
        with own_tasks(ticks := Ticks()), clock(START) as now:
            schedule = make()
            assert schedule.created_at == START
            now.advance(days=30)
            began = time.thread_time()
            assert len(run_jobs()) == 30
            assert time.thread_time() - began < 1
        assert ticks.times == [START + timedelta(days=day, hours=4) for day in range(30)]

    def test_interval__is_counted_from_the_time_of_the_clock(self) -> None:
        with own_tasks(ticks := Ticks()), clock(START) as now:
            now.advance(minutes=1)
            make(cron=None, interval="every 20 s")
            for _ in range(4):
                now.advance(seconds=15)
                run_jobs()
            Schedule.objects.update(interval=timedelta(seconds=30))
            now.advance(seconds=60)
            run_jobs()
        assert [(moment - START).total_seconds() for moment in ticks.times] == [80, 100, 120, 150, 180]

    def test_interval_of_a_task__is_counted_from_the_start_of_the_clock(self) -> None:
        with own_tasks(ticks := Ticks(), every=20), clock(START) as now:
            run_jobs()
            now.advance(seconds=65)
            run_jobs()
        assert [(moment - START).total_seconds() for moment in ticks.times] == [20, 40, 60]

    def test_schedule_that_a_job_makes__fires_in_the_same_call(self) -> None:
        times: list[datetime] = []

        def ticks(payload: Any) -> None:
            times.append(datetime.fromisoformat(payload["_cron"]["ts"]))
            if len(times) == 1:
                make(name="second", cron=None, run_at=START + timedelta(hours=5))

        with own_tasks(ticks), clock(START) as now:
            make()
            now.advance(hours=6)
            run_jobs()
        assert times == [START + timedelta(hours=4), START + timedelta(hours=5)]

    def test_pause_run_now_and_cron_false(self) -> None:
        with own_tasks(ticks := Ticks()), clock(START) as now:
            schedule = make(cron="0 * * * *")
            now.advance(hours=1)
            assert run_jobs(cron=False) == []
            assert len(run_jobs()) == 1
            schedule.pause(START + timedelta(hours=3))
            now.advance(hours=2)
            run_jobs()
            assert Job.objects.get(pk=schedule.run_now()).run_at == START + timedelta(hours=3)
            run_jobs()
        assert [(moment - START).total_seconds() / 3600 for moment in ticks.times] == [1, 3, 3]

    def test_definition_that_cannot_be_read__fails_the_test(self) -> None:
        with own_tasks(Ticks()), clock(START):
            make()
            Schedule.objects.update(cron="x")
            with pytest.raises(ValueError, match="x"):
                run_jobs()


class TestCommittedSchedules(TransactionTestCase):
    def test_schedule__fires_outside_transactions(self) -> None:
        with own_tasks(ticks := Ticks()), clock(START) as now:
            make()
            now.advance(days=1)
            run_jobs()
        assert ticks.times == [START + timedelta(hours=4)]
