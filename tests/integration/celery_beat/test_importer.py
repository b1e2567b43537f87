from __future__ import annotations

import copy
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command

from django_graphile_worker import registry, task
from django_graphile_worker.celery_beat.importer import IMPORTED_BY, Choices, Imported, import_rows, read_rows
from django_graphile_worker.celery_beat.translation import KINDS, Target
from django_graphile_worker.crontab.times import local_minutes
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.schedules.times import Definition, latest_time, times_after
from tests.support import celery_beat
from tests.support.celery_beat_rows import START, YEAR, ZONES, create_rows

pytest.importorskip(celery_beat.APP, reason=celery_beat.REASON)

TASKS = {"proj.tasks.send_old": Target("send", ("user",))}


@pytest.fixture(scope="module")
def installed_beat(django_db_setup: None, django_db_blocker: Any) -> Iterator[Any]:
    with celery_beat.installed(django_db_blocker.unblock) as models:
        with django_db_blocker.unblock():
            create_rows(models)
        yield models


@pytest.fixture
def beat(installed_beat: Any, db: None) -> Iterator[Any]:
    with registry.tasks.isolated():
        for name in ("beat_task", "send", "report"):
            task(name)(lambda payload: None)
        yield installed_beat


def imported(only: Collection[str] = (), **choices: Any) -> dict[str, Imported]:
    rows = [row for row in read_rows("default") if not only or row.name in only]
    with mock.patch("django.utils.timezone.now", return_value=START):
        found = import_rows(rows, Choices(tasks=TASKS, **choices), now=START, using="default")
    return {each.name: each for each in found}


def counts(found: dict[str, Imported]) -> dict[str, int]:
    return dict(Counter(each.outcome for each in found.values()))


def test_200_rows__become_schedules_and_a_second_import_changes_nothing(beat: Any) -> None:
    found = imported()
    assert counts(found) == {"created": 181, "left out": 19}
    assert Schedule.objects.count() == 181
    assert counts(imported()) == {"unchanged": 181, "left out": 19}
    check_unusual(found)


def check_unusual(found: dict[str, Imported]) -> None:
    reasons = {each.name: each.reason for each in found.values() if each.outcome == "left out"}
    assert "sunrise at 52.500000, 13.400000" in reasons["solar 0"]
    assert "match both day_of_month '1-7' and day_of_week 'mon'" in reasons["first Monday"]
    assert "the shortest interval is 1 second" in reasons["too fast"]
    assert "its time has passed (2025-12-31 00:00:30 UTC)" in reasons["past"]
    assert "Celery's own task" in reasons["celery.backend_cleanup"]
    assert (
        "Did you mean 'report'? Name the task that replaces it: --tasks proj.tasks.reprot=" in reasons["unknown task"]
    )
    assert "positional arguments ([1, 2])" in reasons["positional"]
    assert "no JSON" in reasons["no JSON"]
    assert "has run" in reasons["was once"]
    assert "it has expired" in reasons["expired"]
    assert len(found["options"].notes) == 5
    assert [note.split()[0] for note in found["options"].notes] == [
        "queue",
        "priority",
        "expire_seconds",
        "exchange",
        "headers",
    ]
    by_name = {schedule.name: schedule for schedule in Schedule.objects.all()}
    assert not by_name["disabled"].is_enabled
    assert (by_name["renamed task"].task, by_name["renamed task"].payload) == ("send", {"user": 5})
    assert by_name["function name"].task == "report"
    assert by_name["crontab 3"].payload == {"index": 3}
    assert by_name["options"].description == "With options."
    assert by_name["once"].run_at == START.replace(hour=4, second=0)
    assert by_name["crontab 1"].ends_at == START + timedelta(days=300)
    assert {schedule.missed for schedule in by_name.values()} == {"once"}
    assert {schedule.changed_by for schedule in by_name.values()} == {IMPORTED_BY}


def test_second_import__updates_what_it_made_and_keeps_what_people_changed(beat: Any) -> None:
    names = ("hourly 0", "hourly 1", "hourly 2")
    imported(names)
    beat.PeriodicTask.objects.filter(name__in=["hourly 0", "hourly 1"]).update(enabled=False)
    beat.PeriodicTask.objects.filter(name="hourly 2").delete()
    with changed_by("maria"):
        Schedule.objects.filter(name="hourly 1").update(description="Mine")
    found = imported(names)
    assert (found["hourly 0"].outcome, found["hourly 0"].reason) == ("updated", "is_enabled")
    assert found["hourly 1"].outcome == "kept"
    assert "maria has changed it since" in found["hourly 1"].reason
    assert not Schedule.objects.get(name="hourly 0").is_enabled
    assert Schedule.objects.get(name="hourly 1").is_enabled
    assert Schedule.objects.filter(name="hourly 2").exists()
    assert imported(names, overwrites=True)["hourly 1"].outcome == "updated"
    assert Schedule.objects.get(name="hourly 1").description == ""


def test_schedules_of_others__are_not_replaced(beat: Any) -> None:
    Schedule.objects.create(name="hourly 0", task="report", cron="@daily")
    assert "was not imported" in imported(["hourly 0"])["hourly 0"].reason
    assert Schedule.objects.get(name="hourly 0").task == "report"


def test_catching_up__counts_from_the_last_run_of_beat(beat: Any) -> None:
    imported(["crontab 0"], catches_up=True)
    assert Schedule.objects.get(name="crontab 0").counts_from == START


def test_django_task__gets_the_arguments_as_they_are(beat: Any, framework: Any) -> None:
    path = "tests.support.django_tasks.add"
    beat.PeriodicTask.objects.filter(name="positional").update(task=path)
    found = imported(["positional"])["positional"]
    assert (found.outcome, found.reason) == ("created", "")
    schedule = Schedule.objects.get(name="positional")
    assert (schedule.task, schedule.payload) == (path, {"args": [1, 2], "kwargs": {}})


def test_command__says_what_it_did(beat: Any, tmp_path: Path) -> None:
    table = tmp_path / "tasks.json"
    table.write_text(json.dumps({"proj.tasks.send_old": {"task": "send", "arguments": ["user"], "priority": -5}}))
    text = command("--tasks", str(table), "--dry-run")
    # The time of the test is later than that of most rows.
    assert "created    crontab 0: beat_task, " in text
    assert "left out   solar 7: solar schedules are not supported" in text
    assert not Schedule.objects.exists()
    found = {each["name"]: each for each in json.loads(command("--tasks", str(table), "--json"))}
    assert found["renamed task"]["schedule"]["priority"] == -5
    assert Schedule.objects.get(name="renamed task").priority == -5


def command(*arguments: str) -> str:
    out = io.StringIO()
    command = ("graphile_worker", "schedules", "import-celery-beat")
    call_command(*command, *arguments, stdout=out, stderr=io.StringIO(), no_color=True)
    return out.getvalue()


@pytest.mark.django_db(databases=["default", "other"])
def test_command__without_tables_names_the_way_out() -> None:
    with pytest.raises(CommandError, match=r"The database 'other' has no tables of django-celery-beat"):
        command("--from", "other")


def test_beat_and_schedules__fire_at_the_same_times_around_time_changes(beat: Any) -> None:
    imported([row.name for row in read_rows("default")][::3])
    cut = compare(beat, windows(hours=26), most=25)
    # Those that are due every few minutes reach the change in these.
    dense = {row for row in cut if row.startswith("crontab")}
    assert len(dense) > 7
    assert not compare(beat, windows(hours=2), most=40, only=dense)


# Beat is asked about each of its times, for minutes.
@pytest.mark.timeout(1800)
@pytest.mark.chaos
def test_beat_and_schedules__fire_at_the_same_times_for_a_year(beat: Any) -> None:
    imported()
    cut = compare(beat, lambda row: [(START, START + YEAR)], most=9_000)
    compare(beat, windows(hours=60), most=1_500, only=cut)


def windows(*, hours: float) -> Callable[[Any], list[tuple[datetime, datetime]]]:
    """Return a function: the times around the changes of the year in the zone of a row."""
    distance = timedelta(hours=hours)

    def of_row(row: Any) -> list[tuple[datetime, datetime]]:
        zone = celery_beat.zone_of(row)
        changes = celery_beat.time_changes(zone, START, START + YEAR)
        assert len(changes) == (2 if zone.key in ZONES else 0)
        return [(change - distance, change + distance) for change in changes or [START + YEAR / 4]]

    return of_row


def compare(
    beat: Any,
    periods: Callable[[Any], list[tuple[datetime, datetime]]],
    *,
    most: int,
    only: Collection[str] | None = None,
) -> set[str]:
    """Compare up to ``most`` times of each row in its periods; return the names of the rows that have more."""
    schedules = {schedule.name: schedule for schedule in Schedule.objects.filter(is_enabled=True)}
    rows = beat.PeriodicTask.objects.filter(enabled=True, name__in=only or schedules).select_related(*KINDS)
    cut = set()
    for row in rows:
        for after, until in periods(row):
            expected = beat_times(row, schedules[row.name], after, until, most)
            found = our_times(schedules[row.name], after, until, most)
            if most in {len(expected), len(found)}:
                cut.add(row.name)
            expected, found = of_equal_length(expected, found, most)
            difference = without_skipped(row, expected, found)
            assert difference == (set(), set()), (row, difference)
    return cut


def of_equal_length(
    expected: list[datetime], found: list[datetime], most: int
) -> tuple[list[datetime], list[datetime]]:
    """Return both up to the time at which the first of them was cut."""
    end = min(times[-1] if len(times) == most else datetime.max.replace(tzinfo=UTC) for times in (expected, found))
    return [time for time in expected if time <= end], [time for time in found if time <= end]


def beat_times(row: Any, schedule: Schedule, after: datetime, until: datetime, most: int) -> list[datetime]:
    """Return the times of beat, as if it had run until the beginning of the period."""
    row = copy.copy(row)
    # Some intervals were due once more between their last run and the import.
    earlier = latest_time(Definition.of(schedule), START - timedelta(seconds=9), after)
    if earlier is not None:
        row.last_run_at = earlier
        row.total_run_count = 1
    return celery_beat.fire_times(row, after, until, most=most)


def our_times(schedule: Schedule, after: datetime, until: datetime, most: int) -> list[datetime]:
    times = takewhile(lambda time: time <= until, times_after(Definition.of(schedule), after))
    return list(islice(times, most))


def without_skipped(row: Any, expected: list[datetime], found: list[datetime]) -> tuple[set[datetime], set[datetime]]:
    """Return what only beat and only our schedules fire, without the documented difference.

    Local times that the clock skips: beat fires them an hour later, and drops them if it fires at that time anyway.
    A schedule fires at the end of the gap.
    """
    zone = celery_beat.zone_of(row)
    ends = [time for time in found if row.crontab and len(local_minutes(time, zone)) > 1]
    hours = [(end, end + timedelta(hours=1)) for end in ends]
    only_beat = {time for time in set(expected) - set(found) if not any(a <= time < b for a, b in hours)}
    only_ours = set(found) - set(expected) - set(ends)
    return only_beat, only_ours
