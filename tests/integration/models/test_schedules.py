"""``Schedule``: made and changed by the ORM, run by hand, paused and resumed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_graphile_worker.models import Job, Schedule
from django_graphile_worker.models.schedule_changes import changed_by


@pytest.mark.django_db
def test_run_now_adds_the_job_of_a_tick() -> None:
    schedule = Schedule.objects.create(name="nightly", task="report", cron="0 4 * * *", payload={"a": 1}, priority=3)
    job = Job.objects.get(pk=schedule.run_now(by="maria"))
    assert (job.task.identifier, job.payload["a"], job.priority) == ("report", 1, 3)
    assert job.payload["_cron"]["backfilled"] is False


@pytest.mark.django_db
def test_pause_and_resume() -> None:
    schedule = Schedule.objects.create(name="often", task="report", interval=timedelta(seconds=10))
    assert len(schedule.next_times(3)) == 3
    schedule.pause(by="maria")
    assert (schedule.is_paused, schedule.is_paused_forever, schedule.changed_by) == (True, True, "maria")
    assert schedule.next_times() == ()
    until = timezone.now() + timedelta(hours=1)
    schedule.pause(until)
    assert schedule.is_paused
    assert not schedule.is_paused_forever
    assert schedule.next_times(1)[0] >= until
    schedule.resume()
    assert (schedule.paused_until, schedule.changed_by) == (None, "")


@pytest.mark.django_db
def test_changed_by_names_who_made_the_changes_of_the_block() -> None:
    with changed_by("maria"):
        schedule = Schedule.objects.create(name="often", task="report", interval=timedelta(seconds=10))
    schedule.description = "changed"
    schedule.save()
    assert (schedule.revision, schedule.changed_by) == (1, "")
    with changed_by("maria"):
        Schedule.objects.update(description="again")
    schedule.refresh_from_db()
    assert (schedule.revision, schedule.changed_by) == (2, "maria")
