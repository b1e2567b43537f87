"""``clock()``: scheduled jobs and retries follow it, and Python's time and that of Django's SQL do."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection, models
from django.db.models.functions import Now
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone
from django.utils.timezone import now as imported_now

from django_graphile_worker import (
    JobSpec,
    add_job,
    add_jobs,
    get_job,
    reschedule_jobs,
    simulation,
)
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidJobError, InvalidTypeError
from django_graphile_worker.testing import clock, jobs, run_jobs
from tests.support.stepped_worker import own_tasks

START = datetime(2030, 1, 1, 12, 30, 15, tzinfo=UTC)


class Times(list[datetime]):
    """A task that records when it runs."""

    __name__ = "times"

    def __call__(self, payload: Any) -> None:
        self.append(timezone.now())


class TestClock(TestCase):
    def test_it_starts_at_the_present_and_stands_still(self) -> None:
        before = datetime.now(UTC)
        with clock() as now:
            shown = now()
            assert before <= shown <= datetime.now(UTC)
            assert now() == timezone.now() == imported_now() == shown

    def test_it_moves(self) -> None:
        with clock(START) as now:
            assert now.advance(days=3, hours=1) == START + timedelta(days=3, hours=1)
            assert now.advance(timedelta(seconds=1)) == now() == timezone.now()
            later = datetime(2031, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
            assert now.move_to(later) == later
            assert now() == later

    def test_time_is_restored__also_after_an_error(self) -> None:
        code, as_postgresql = timezone.now.__code__, Now.as_postgresql
        with pytest.raises(ValueError), clock(START):
            raise ValueError
        assert timezone.now.__code__ is code
        assert Now.as_postgresql is as_postgresql
        assert simulation.now is None
        assert abs(timezone.now() - datetime.now(UTC)) < timedelta(minutes=5)

    def test_models_and_statements_of_django__follow(self) -> None:
        with clock(START) as now:
            user = User.objects.create(username="ann")
            assert user.date_joined == START
            assert not User.objects.filter(date_joined__lt=Now()).exists()
            now.advance(seconds=1)
            assert User.objects.filter(date_joined__lt=Now()).exists()
            assert User.objects.annotate(at=models.ExpressionWrapper(Now(), models.DateTimeField())).get().at == now()

    @override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin")
    def test_without_time_zones__times_are_naive(self) -> None:
        at = datetime(2030, 1, 1, 12, 30)  # noqa: DTZ001
        with clock(at) as now:
            assert now() == timezone.now() == at

    def test_backwards__is_refused(self) -> None:
        with clock(START) as now:
            with pytest.raises(InvalidJobError, match=r"cannot move back by -1 day"):
                now.advance(days=-1)
            with pytest.raises(InvalidJobError, match=r"shows 2030-01-01T12:30:15.*cannot move back.*clock\(at\)"):
                now.move_to(START - timedelta(seconds=1))
            assert now() == START

    def test_bad_arguments__are_refused(self) -> None:
        with clock(START) as now:
            for arguments in ((), (3,), ("3 days",)):
                with pytest.raises(InvalidTypeError, match="expected a timedelta, or days="):
                    now.advance(*arguments)
            with pytest.raises(InvalidTypeError, match="got both"):
                now.advance(timedelta(1), days=1)
            with pytest.raises(InvalidTypeError, match="expected a datetime, got '2030'"):
                now.move_to("2030")  # type: ignore[arg-type]
            with pytest.raises(GraphileWorkerError, match="A clock is open already, and shows 2030-01-01"):
                clock().__enter__()

    def test_move_inside_a_job__is_refused(self) -> None:
        def moves(payload: Any) -> None:
            now.advance(days=1)

        with own_tasks(moves), clock(START) as now:
            add_job("moves")
            now.advance(days=1)
            with pytest.raises(GraphileWorkerError, match="Only a test can move the clock"):
                run_jobs()


class ClockedJobs:
    """The same in the transaction of a TestCase, and in autocommit mode."""

    def test_scheduled_jobs__run_at_their_time(self) -> None:
        with own_tasks(times := Times()), clock(START) as now:
            add_job("times", run_at=timedelta(days=2))
            add_job("times", run_at=START + timedelta(days=1))
            add_job("times")
            assert len(run_jobs()) == 1
            now.advance(days=1)
            assert len(run_jobs()) == 1
            now.advance(days=30)
            assert len(run_jobs()) == 1
            assert timezone.now() == START + timedelta(days=31)
        assert times == [START, START + timedelta(days=1), START + timedelta(days=2)]

    def test_times_of_added_jobs__are_those_of_the_clock(self) -> None:
        with clock(START) as now:
            added = [
                add_job("x"),
                add_job("x", run_at=timedelta(hours=1), queue_name="q"),
                add_job("x", job_key="k"),
                *add_jobs([JobSpec("x"), JobSpec("x", run_at=timedelta(hours=2)), JobSpec("x", job_key="l")]),
            ]
            assert [get_job(job.id) for job in added] == added
            assert {job.created_at for job in added} == {START}
            hours = [(job.run_at - START).total_seconds() / 3600 for job in added]
            assert hours == [0, 1, 0, 0, 2, 0]
            add_jobs([JobSpec("stream", run_at=timedelta(hours=3))], returning=False)
            assert jobs("stream")[0].run_at == START + timedelta(hours=3)
            now.advance(minutes=1)
            replaced = add_job("x", job_key="k")
            assert (replaced.created_at, replaced.updated_at, replaced.run_at) == (START, now(), now())
            (rescheduled,) = reschedule_jobs([replaced.id], run_at=timedelta(hours=1))
            assert rescheduled.run_at == now() + timedelta(hours=1)

    def test_three_days_of_retries__take_less_than_a_second(self) -> None:
        tried: list[datetime] = []

        def fails(payload: Any) -> None:
            tried.append(timezone.now())
            raise ValueError

        with own_tasks(fails), clock(START) as now:
            add_job("fails")
            now.advance(days=3)
            began = time.thread_time()
            ran = run_jobs(on_error="record")
            assert time.thread_time() - began < 1
        waits = [(after - before).total_seconds() for before, after in pairwise(tried)]
        assert waits[:3] == pytest.approx([2.718, 7.389, 20.086], abs=0.001)
        assert waits[-1] == pytest.approx(22026.466, abs=0.001)
        assert len(ran) == 21
        assert ran[-1].job.attempts == 21

    def test_jobs_that_add_jobs_for_later__run_in_the_order_of_time(self) -> None:
        seen: list[tuple[str, datetime]] = []

        def each_day(payload: Any) -> None:
            seen.append(("each_day", timezone.now()))
            add_job("each_day", run_at=timedelta(days=1))

        def noon(payload: Any) -> None:
            seen.append(("noon", timezone.now()))

        with own_tasks(each_day, noon), clock(START) as now:
            add_job("each_day")
            add_job("noon", run_at=timedelta(hours=36))
            now.advance(days=2)
            run_jobs()
        names = [name for name, _ in seen]
        assert names == ["each_day", "each_day", "noon", "each_day"]
        assert [moment for _, moment in seen] == sorted(moment for _, moment in seen)

    def test_after_a_failure__the_rest_of_the_time_is_caught_up(self) -> None:
        def fails_once(payload: Any) -> None:
            times.append(timezone.now())
            if len(times) == 1:
                raise ValueError

        times: list[datetime] = []
        with own_tasks(fails_once), clock(START) as now:
            add_job("fails_once", run_at=timedelta(days=1))
            add_job("fails_once", run_at=timedelta(days=2))
            now.advance(days=3)
            with pytest.raises(ValueError):
                run_jobs()
            assert timezone.now() == now() == START + timedelta(days=3)
            assert len(run_jobs()) == 2
        assert times[1:] == [
            START + timedelta(days=1, seconds=2, microseconds=718282),
            START + timedelta(days=2),
        ]


class TestInTransaction(ClockedJobs, TestCase):
    pass


class TestInAutocommitMode(ClockedJobs, TransactionTestCase):
    def setUp(self) -> None:
        # Not all clocks are in the future.
        with connection.cursor() as cursor:
            cursor.execute("select 1")
