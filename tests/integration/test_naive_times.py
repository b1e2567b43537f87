"""``USE_TZ = False``: a job's times are naive, wherever a site meets the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import Job, add_job, run_once, signals
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql import recovery
from tests.support.cron_world import CronWorld
from tests.support.factories import make_job
from tests.support.slot import open_slot
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)

SIGNALS = ("jobs_claimed", "job_started", "job_succeeded", "job_released")
SEEN: dict[str, Job] = {}
NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
NOON_IN_TOKYO = datetime(2026, 6, 1, 21, 0)  # noqa: DTZ001


@pytest.fixture(autouse=True)
def without_time_zones(settings: Any) -> Iterator[None]:
    SEEN.clear()
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"
    connection.ensure_timezone()
    yield
    settings.USE_TZ = True
    settings.TIME_ZONE = "UTC"
    connection.ensure_timezone()


def looks(payload: Any, helpers: Any) -> None:
    SEEN["helpers"] = helpers.job


def middleware(get_result: Any) -> Any:
    def middleware(job: Job) -> Any:
        SEEN["middleware"] = job
        return get_result(job)

    return middleware


@pytest.fixture
def heard() -> Iterator[None]:
    def receiver_for(name: str) -> Callable[..., None]:
        def hear(**arguments: Any) -> None:
            SEEN[name] = arguments.get("job") or arguments["jobs"][0]

        return hear

    for name in SIGNALS:
        getattr(signals, name).connect(receiver_for(name), weak=False, dispatch_uid="naive")
    yield
    for name in SIGNALS:
        getattr(signals, name).disconnect(dispatch_uid="naive")


@pytest.mark.usefixtures("heard")
def test_every_reader_sees_the_times_that_add_job_returned() -> None:
    with own_tasks(looks):
        added = add_job("looks")
        assert run_once(middleware=[f"{__name__}.middleware"]) == 0
    assert SEEN.keys() == {"helpers", "middleware", *SIGNALS}
    for job in SEEN.values():
        assert (job.run_at, job.created_at) == (added.run_at, added.created_at)
        # Locked in the hour that followed, by the same clock.
        assert job.locked_at is not None
        assert timedelta(minutes=-1) < job.locked_at - added.run_at < timedelta(hours=1)


def test_a_job_that_killed_its_worker_is_reported_with_naive_times(
    raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    job_id = make_job("looks", locked_by="django-worker-dead/1", locked_at=NOON_IN_TOKYO, attempts=1, max_attempts=1)
    with raw_connection() as connection, connection.cursor() as cursor:
        cursor.execute(f'insert into "{worker_schema}"._private_job_recoveries values (%s, 2)', [job_id])
        cursor.execute(f"update \"{worker_schema}\"._private_jobs set last_error = 'died twice'")
        (told,) = recovery.recover_claims(cursor, ["django-worker-dead"], schema=worker_schema).exhausted
    assert told.job.locked_at == NOON_IN_TOKYO
    assert told.job.run_at.tzinfo is told.job.created_at.tzinfo is told.job.updated_at.tzinfo is None


def test_ticks_are_reported_in_the_sites_zone(raw_connection: Callable[..., Any], worker_schema: str) -> None:
    world = CronWorld(raw_connection, worker_schema, NOON)
    cron, _ = world.worker([CronItem("filled", "* * * * *", backfill_period="1d")])
    for minutes in (0, 1, 3):
        world.now = NOON + timedelta(minutes=minutes, seconds=1)
        world.settle(cron)
    scheduled, backfilled = [arguments for _, arguments in world.sent[1:]]
    assert scheduled["tick"] == NOON_IN_TOKYO + timedelta(minutes=1)
    assert backfilled["ticks"] == (NOON_IN_TOKYO + timedelta(minutes=2), NOON_IN_TOKYO + timedelta(minutes=3))


@pytest.mark.parametrize("epoch", [float("inf"), float("-inf"), float("nan")])
def test_times_at_the_calendars_end_stay_there(epoch: float) -> None:
    with open_slot() as slot:
        slot.run(looks, run_at_epoch=epoch)
    assert SEEN["helpers"].run_at.year in (1, 9999)
    assert SEEN["helpers"].run_at.tzinfo is None


def test_django_task__has_naive_times(framework: Any) -> None:
    plain = framework.about.enqueue()
    later = framework.add.using(run_after=NOON_IN_TOKYO).enqueue(1)
    delayed = framework.add.using(run_after=timedelta(hours=1)).enqueue(1)
    assert framework.add.get_result(later.id) == later
    assert framework.add.get_result(delayed.id) == delayed
    assert delayed.task.run_after == delayed.enqueued_at + timedelta(hours=1)
    assert run_once() == 0
    assert framework.calls[0][1].task_result.started_at.tzinfo is None
    plain.refresh()
    times = (plain.enqueued_at, plain.started_at, plain.last_attempted_at, plain.finished_at)
    assert [time.tzinfo for time in times] == [None] * 4
    assert list(times) == sorted(times)
