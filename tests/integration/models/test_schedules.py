"""``Schedule``: made and changed by the ORM, run by hand, paused and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_graphile_worker import registry, task
from django_graphile_worker.models import Job, Schedule, changed_by
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def report() -> Iterator[Any]:
    """A task with defaults."""
    with registry.tasks.isolated():
        yield task("report", queue_name="reports", priority=3, flags=["slow"], job_key=_key)(lambda payload: None)


def _key(payload: Any) -> str:
    return f"report-{payload['a']}"


def make(name: str = "nightly", **values: Any) -> Schedule:
    return Schedule.objects.create(
        **{"name": name, "task": "report", "cron": "0 4 * * *", "payload": {"a": 1}} | values
    )


def runs(schedule: Schedule) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        table = Schedule._meta.db_table.replace("_private_schedules", "_private_schedule_runs")
        cursor.execute(f"select kind, job_id, run_by from {table} where schedule_id = %s order by id", [schedule.pk])
        return list(cursor.fetchall())


def changes() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        table = Schedule._meta.db_table.replace("_private_schedules", "_private_schedule_changes")
        cursor.execute(f"select changed_by, before::json, after::json from {table} order by id")
        return list(cursor.fetchall())


def test_create__takes_a_task_and_an_instance_of_its_payload(report: Any) -> None:
    @dataclass
    class Payload:
        a: int
        since: datetime

    schedule = make(task=report, payload=Payload(a=1, since=datetime(2027, 1, 1, tzinfo=UTC)))
    schedule.refresh_from_db()
    assert (schedule.task, schedule.payload) == ("report", {"a": 1, "since": "2027-01-01T00:00:00Z"})
    with pytest.raises(ValidationError, match="payload"):
        make("other", payload=object())


def test_run_now__adds_the_job_of_a_tick_with_the_defaults_of_its_task() -> None:
    schedule = make()
    job_id = schedule.run_now(by="maria")
    job = Job.objects.get(pk=job_id)
    assert (job.task.identifier, job.payload["a"], job.priority, job.key) == ("report", 1, 3, "report-1")
    assert job.job_queue is not None
    assert (job.job_queue.queue_name, job.payload["_cron"]["backfilled"]) == ("reports", False)
    slow, recorded = sorted(job.flags or (), reverse=True)
    assert (slow, recorded.rpartition(":")[0]) == ("slow", f"schedule:{schedule.pk}")
    assert 24 * 86_400 <= int(recorded.rpartition(":")[2]) <= 25 * 86_400, "until it has fired 25 times more"
    assert runs(schedule) == [("by_hand", job_id, "maria")]


def test_run_now__uses_what_is_stored_and_not_what_the_object_says() -> None:
    schedule = make()
    Schedule.objects.update(payload={"a": 2}, priority=7, overlap="queue", queue_name=None)
    job = Job.objects.get(pk=schedule.run_now())
    assert job.job_queue is not None
    assert (job.payload["a"], job.priority, job.job_queue.queue_name) == (2, 7, f"schedule:{schedule.pk}")
    schedule.delete()
    with pytest.raises(Schedule.DoesNotExist):
        Schedule(pk=9_999_999).run_now()


def test_run_now__keeps_fifty_runs() -> None:
    schedule = make(job_key="same")
    for _ in range(52):
        schedule.run_now()
    assert len(runs(schedule)) == 50


def test_pause_and_resume() -> None:
    schedule = make(cron=None, interval="every 10 s")
    assert schedule.interval == timedelta(seconds=10)
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
    with connection.cursor() as cursor:
        table = Schedule._meta.db_table.replace("_private_schedules", "_private_events")
        cursor.execute(f"select kind, details ->> 'by', details ? 'until' from {table} order by id")
        assert cursor.fetchall() == [
            ("schedule_paused", "maria", False),
            ("schedule_paused", None, True),
            ("schedule_resumed", None, False),
        ]


def _save(schedule: Schedule) -> None:
    schedule.ends_at = timezone.now() + timedelta(days=9)
    schedule.save()


CHANGES: dict[str, Callable[[Schedule], object]] = {
    "save": _save,
    "update": lambda schedule: Schedule.objects.update(time_zone="Europe/Berlin"),
    "pause": lambda schedule: schedule.pause(),
    "disable": lambda schedule: Schedule.objects.update(is_enabled=False),
    "command pauses": lambda schedule: operate("schedules", "pause", schedule.name, "--until", "+1h"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change__keeps_the_times_that_are_due(change: Callable[[Schedule], object]) -> None:
    schedule = make(cron="* * * * *")
    execute("update {schema}._private_schedules set counts_from = now() - interval '1 hour', next_at = now()")
    change(schedule)
    ((former, is_moved),) = execute("select former_times, counts_from >= now() from {schema}._private_schedules")
    assert ([each["cron"] for each in json.loads(former)], is_moved) == (["* * * * *"], True)


def test_changed_by__names_who_made_the_changes_of_the_block() -> None:
    with changed_by("maria"):
        schedule = make()
    assert schedule.changed_by == "maria"
    schedule.description = "changed"
    schedule.save()
    assert (schedule.revision, schedule.changed_by) == (1, "")
    with changed_by("ada"), changed_by("maria"):
        Schedule.objects.update(description="again")
    schedule.refresh_from_db()
    assert (schedule.revision, schedule.changed_by) == (2, "maria")
    with changed_by("ada"):
        schedule.delete()
    assert [(by, before["description"], (after or {}).get("description")) for by, before, after in changes()] == [
        ("", "", "changed"),
        ("maria", "changed", "again"),
        ("ada", "again", None),
    ]


def test_save__cannot_change_what_workers_write() -> None:
    """An object that was read before a worker fired is saved by a form a minute later."""
    stale = make()
    fired = datetime(2026, 11, 16, 4, tzinfo=UTC)
    Schedule.objects.filter(pk=stale.pk).update(next_at=fired, last_tick=fired, last_job_id=5)
    for name in ("next_at", "counts_from", "created_at"):
        setattr(stale, name, None)
    stale.description = "changed"
    stale.save()
    assert (stale.next_at, stale.last_tick, stale.last_job_id, stale.revision) == (fired, fired, 5, 1)
    assert stale.counts_from is not None
    before = (stale.counts_from, stale.changed_at)
    stale.save()
    assert (stale.counts_from, stale.changed_at, stale.revision) == (*before, 1), "a save that changes nothing"


def test_a_change_of_the_times__has_the_next_time_computed_again() -> None:
    schedule = make()
    Schedule.objects.update(next_at=datetime(2026, 11, 16, 4, tzinfo=UTC))
    for change in ({"cron": "0 5 * * *"}, {"time_zone": "Europe/Berlin"}, {"ends_at": timezone.now() + timedelta(9)}):
        Schedule.objects.update(next_at=datetime(2026, 11, 16, 4, tzinfo=UTC))
        Schedule.objects.update(**change)
        schedule.refresh_from_db()
        assert schedule.next_at is not None
        assert schedule.next_at.year == 1, change
    Schedule.objects.update(is_enabled=False)
    schedule.refresh_from_db()
    assert schedule.next_at.year == 9999


MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"cron": "61 4 * * *"}, "cron", "61"),
    ({"cron": None}, "__all__", "give one of cron, interval and run_at"),
    ({"interval": timedelta(seconds=5)}, "__all__", "give only one of cron and interval"),
    ({"cron": None, "interval": timedelta(milliseconds=5)}, "interval", "from 1 second"),
    ({"cron": None, "run_at": datetime(2020, 1, 1, tzinfo=UTC)}, "run_at", "is past"),
    ({"time_zone": "Europe/Berln"}, "time_zone", "Europe/Berlin"),
    ({"task": "reprot"}, "task", "report"),
    ({"missed": "all"}, "missed_within", "how far back"),
    ({"payload": [1]}, "payload", "expected"),
    ({"max_attempts": 0}, "max_attempts", "expected"),
]


@pytest.mark.parametrize(("values", "field", "text"), MISTAKES)
def test_a_definition_with_a_mistake__is_refused(values: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**values)
    assert list(caught.value.message_dict) == [field]
    assert text in str(caught.value.message_dict[field])
    good = {"name": "nightly", "task": "report", "cron": "0 4 * * *", "payload": {"a": 1}}
    with pytest.raises(ValidationError):
        Schedule.objects.bulk_create([Schedule(**good), Schedule(**good | {"name": "other"} | values)])
    assert not Schedule.objects.exists()


def test_a_schedule_of_a_task_that_is_gone__can_still_be_changed() -> None:
    make()
    Schedule.objects.update(task="gone")
    schedule = Schedule.objects.get()
    schedule.is_enabled = False
    schedule.save()
    schedule.task = "also_gone"
    with pytest.raises(ValidationError, match="this project has no task"):
        schedule.save()


@pytest.mark.parametrize(
    "change",
    [
        {"interval": timedelta(seconds=5)},
        {"missed": "all"},
        {"ends_at": datetime(2020, 1, 1, tzinfo=UTC), "starts_at": datetime(2021, 1, 1, tzinfo=UTC)},
        {"max_attempts": 0},
        {"overlap": "both"},
    ],
)
def test_update__refuses_what_the_database_refuses(change: dict[str, Any]) -> None:
    make()
    with pytest.raises(IntegrityError), transaction.atomic():
        Schedule.objects.update(**change)


def test_runs__tell_what_became_of_the_last_ticks() -> None:
    schedule = make()
    assert schedule.runs() == []
    first_job = schedule.run_now(by="maria")
    assert schedule.run_now(by="tom") == first_job, "both jobs have the same key"
    latest, first = schedule.runs()
    assert (latest.run_by, latest.kind, latest.outcome, latest.job_id) == ("tom", "by_hand", "waiting", first_job)
    assert (first.run_by, first.outcome, first.schedule_id) == ("maria", "replaced", schedule.pk)
    assert schedule.runs(number=1) == [latest]


def test_copy_of_a_schedule_of_the_code__is_one_of_the_database() -> None:
    schedule = make("poll")
    Schedule.objects.update(is_from_code=True)
    schedule.refresh_from_db()
    schedule.save()
    schedule.pk, schedule.name, schedule._state.adding = None, "copy", True
    schedule.save()
    assert dict(Schedule.objects.values_list("name", "is_from_code")) == {"poll": True, "copy": False}
