from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.importing.celery_beat.rows import BeatRow, as_time, beat_row
from django_graphile_worker.importing.celery_beat.task_table import Target
from django_graphile_worker.importing.celery_beat.translation import Translation, translate
from django_graphile_worker.importing.celery_beat.unsupported import Unsupported

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NIGHTLY = {"minute": "0", "hour": "4", "day_of_month": "*", "month_of_year": "*", "day_of_week": "*"}


def row(kind: str = "interval", schedule: dict[str, Any] | None = None, **values: Any) -> BeatRow:
    return BeatRow(name="Nightly", task="x", kind=kind, schedule=schedule or {"every": 1, "period": "hours"}, **values)


def translated(beat: BeatRow, target: Target | None = None, *, is_django_task: bool = False) -> Translation:
    return translate(beat, target or Target("send"), now=NOW, is_django_task=lambda name: is_django_task)


def test_values__are_those_of_a_schedule() -> None:
    beat = row("crontab", NIGHTLY | {"timezone": "Europe/Berlin"}, start_time=NOW, expires=NOW + HOUR, is_enabled=False)
    found = translated(beat)
    assert found.notes == ()
    assert found.anchor_at is None
    assert found.values == {
        "name": "Nightly",
        "task": "send",
        "payload": {},
        "cron": "0 4 * * *",
        "interval": None,
        "run_at": None,
        "time_zone": "Europe/Berlin",
        "starts_at": NOW,
        "ends_at": NOW + HOUR,
        "missed": "once",
        "is_enabled": False,
        "description": "",
    }


def test_interval__is_counted_from_the_last_run() -> None:
    assert translated(row(last_run_at=NOW - HOUR, date_changed=NOW)).anchor_at == NOW - HOUR
    assert translated(row(date_changed=NOW)).anchor_at == NOW
    assert translated(row(date_changed=NOW, start_time=NOW)).anchor_at is None


def test_arguments__get_the_names_of_the_table() -> None:
    beat = row(args='["maria", 5]', kwargs='{"kind": "mail"}')
    target = Target("send", ("user", "number", "retries"), {"source": "beat"})
    expected = {"user": "maria", "number": 5, "kind": "mail", "source": "beat"}
    assert translated(beat, target).values["payload"] == expected
    assert translated(beat, is_django_task=True).values["payload"] == {
        "args": ["maria", 5],
        "kwargs": {"kind": "mail"},
    }
    with pytest.raises(Unsupported, match=r'positional arguments \(\["maria", 5\]\).*"arguments": '):
        translated(beat, Target("send", ("user",)))


def test_single_time__is_the_next_time() -> None:
    once = row("crontab", NIGHTLY, is_one_off=True)
    found = translated(once)
    assert (found.values["run_at"], found.values["cron"]) == (datetime(2026, 11, 17, 4, tzinfo=UTC), None)
    assert found.is_computed_time
    hourly = row(is_one_off=True, last_run_at=NOW - HOUR / 4)
    assert translated(hourly).values["run_at"] == NOW + HOUR * 3 / 4
    clocked = row("clocked", {"clocked_time": NOW + HOUR}, is_one_off=True)
    assert (translated(clocked).values["run_at"], translated(clocked).is_computed_time) == (NOW + HOUR, False)


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        (row("clocked", {"clocked_time": NOW}, is_one_off=True), "its time has passed"),
        (row(is_one_off=True, total_run_count=1), "has run"),
        (row(is_one_off=True, expires=NOW + HOUR / 4, last_run_at=NOW), "its time has passed"),
        (row(expires=NOW), r"it has expired \(2026-11-16 12:00:00 UTC\)"),
        (row("solar", {"event": "sunset", "latitude": 1, "longitude": 2}), "sunset at 1, 2"),
        (row("", {}), "no schedule"),
        (row(schedule={"every": 1, "period": "fortnights"}), "its interval is 1 fortnights"),
        (row(schedule={"every": 999_999, "period": "microseconds"}), "the shortest interval is 1 second"),
        (row(kwargs="{"), "no JSON"),
        (row(kwargs="[]"), "no list and no object"),
    ],
)
def test_what_has_no_equivalent__is_refused_with_the_reason(beat: BeatRow, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        translated(beat)


def test_options__of_the_table_win_and_leave_no_note() -> None:
    beat = row(queue="mail", priority=9)
    assert len(translated(beat).notes) == 2
    found = translated(beat, Target("send", options={"queue_name": "mail", "priority": -1}))
    assert (found.notes, found.values["queue_name"], found.values["priority"]) == ((), "mail", -1)


def test_row_of_an_old_version__lacks_columns() -> None:
    old = {"name": "Nightly", "task": "x", "interval_id": 3, "crontab_id": None, "enabled": 1, "headers": None}
    found = beat_row(old, {"interval": {3: {"every": 1, "period": "hours"}}})
    assert (found.kind, found.is_enabled, found.headers) == ("interval", True, "{}")
    assert translated(found).values["interval"] == HOUR


def test_times_of_databases_without_zones__are_utc() -> None:
    assert as_time("2026-11-16 12:00:00") == NOW
    assert as_time(NOW.replace(tzinfo=None)) == NOW
    assert as_time(None) is None
