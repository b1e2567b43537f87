from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.schedules.validation import SEVERAL_FIELDS, errors_in

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def schedule(**values: Any) -> dict[str, Any]:
    if not values.keys() & {"cron", "interval", "run_at"}:
        values["cron"] = "0 9 * * *"
    every = {"name": "Report", "task": "report", "payload": {}, "time_zone": "UTC", "description": ""}
    return every | {"missed": "skip", "missed_within": None, "overlap": "allow"} | values


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"cron": "@hourly"},
        {"interval": timedelta(seconds=1)},
        {"interval": "every 10 s"},
        {"run_at": NOON, "starts_at": NOON, "ends_at": NOON + HOUR},
        {"missed": "all", "missed_within": "2 days"},
        {"missed": "all", "missed_within": timedelta(days=2)},
        {"queue_name": "q", "priority": -5, "max_attempts": 3, "job_key": "k", "overlap": "queue"},
        {"starts_at": NOON, "ends_at": NOON + timedelta(days=1)},
        {"paused_until": datetime(9999, 12, 30, tzinfo=UTC)},
        {"interval": timedelta(days=1), "starts_at": NOON, "ends_at": NOON + HOUR},
    ],
)
def test_correct_values__have_no_mistakes(values: dict[str, Any]) -> None:
    assert errors_in(schedule(**values), tasks={"report"}) == {}


@pytest.mark.parametrize(
    ("values", "field", "text"),
    [
        ({"name": ""}, "name", "expected 1 to 200 characters, got ''."),
        ({"name": None}, "name", "expected a string, got None (NoneType)."),
        ({"task": ""}, "task", "expected 1 to 128 characters, got ''."),
        ({"task": "repotr"}, "task", "this project has no task 'repotr'. Did you mean 'report'?"),
        ({"payload": [1]}, "payload", "expected an object (a dict) as payload, got [1]."),
        ({"cron": "61 * * * *"}, "cron", "cron line column 1: expected a minute from 0 to 59, got '61'."),
        ({"cron": "@every 10 s"}, "cron", "'@every 10 s' is an interval, not a cron line: give it as interval."),
        ({"cron": "0 0 9 * * *"}, "cron", "Cron lines have no seconds: use an interval."),
        ({"cron": "0 0 30 2 *"}, "cron", "a day that exists in month 2"),
        ({"cron": 5}, "cron", "expected a cron line like '0 9 * * 1-5', got 5."),
        ({"interval": timedelta(milliseconds=5)}, "interval", "from 1 second to 100 years, got 0:00:00.005000."),
        ({"interval": "10"}, "interval", "no unit"),
        ({"interval": 10}, "interval", "expected a timedelta, or an interval like"),
        ({"run_at": datetime(2026, 11, 16)}, "run_at", "expected a time with a time zone"),  # noqa: DTZ001
        ({"run_at": datetime(9999, 11, 16, tzinfo=UTC)}, "run_at", "expected a time in the years 2 to 9998"),
        ({"time_zone": "Europe/Berlni"}, "time_zone", "did you mean Europe/Berlin?"),
        ({"time_zone": ""}, "time_zone", "expected the name of an IANA time zone"),
        ({"queue_name": ""}, "queue_name", "expected 1 to 128 characters"),
        ({"priority": 40_000}, "priority", "expected a whole number from -32768 to 32767, got 40000."),
        ({"max_attempts": 0}, "max_attempts", "expected a whole number from 1 to 32767, got 0."),
        ({"job_key": "\0"}, "job_key", "PostgreSQL cannot store"),
        ({"paused_until": "tomorrow"}, "paused_until", "expected a time with a time zone, got 'tomorrow'."),
        ({"missed": "maybe"}, "missed", "expected one of skip, once, all, got 'maybe'."),
        ({"missed": "all"}, "missed_within", "how far back missed times are fired"),
        ({"missed_within": HOUR}, "missed_within", "set missed to 'all'"),
        ({"overlap": "never"}, "overlap", "expected one of allow, skip, queue, got 'never'."),
        ({"starts_at": NOON, "ends_at": NOON}, "ends_at", "is not later than starts_at"),
        ({"run_at": NOON, "ends_at": NOON}, "run_at", "it would never fire"),
        ({"starts_at": NOON, "ends_at": NOON + HOUR}, "ends_at", "it would never fire"),
        ({"description": "\ud800"}, "description", "PostgreSQL cannot store"),
        ({"cron": None}, SEVERAL_FIELDS, "give one of cron, interval and run_at"),
        (
            {"cron": "@daily", "interval": HOUR},
            SEVERAL_FIELDS,
            "give only one of cron and interval, and leave the others empty.",
        ),
    ],
)
def test_mistake__is_told_at_its_field(values: dict[str, Any], field: str, text: str) -> None:
    found = errors_in(schedule(**values), tasks={"report"})
    assert list(found) == [field]
    assert text in found[field][0]


def test_single_time__of_a_new_schedule_is_in_the_future() -> None:
    past = schedule(run_at=NOON)
    assert errors_in(past) == {}
    assert "is past" in errors_in(past, now=NOON)["run_at"][0]
    assert errors_in(past, now=NOON - HOUR) == {}


def test_new_schedule__has_not_ended() -> None:
    ended = schedule(starts_at=NOON - timedelta(days=9), ends_at=NOON - timedelta(days=1))
    assert errors_in(ended) == {}
    assert "would never fire" in errors_in(ended, now=NOON)["ends_at"][0]


def test_all_mistakes__are_told_at_once() -> None:
    values = schedule(cron="61 25 * * *", priority="high", time_zone="Mars")
    found = errors_in(values)
    assert found.keys() == {"cron", "priority", "time_zone"}
    assert "column 1" in found["cron"][0]
    assert "column 4" in found["cron"][0]


def test_parts_of_a_schedule__are_checked_alone() -> None:
    assert errors_in({"cron": "0 9 * * *"}) == {}
    assert errors_in({"cron": "0 9 * *"}).keys() == {"cron"}
