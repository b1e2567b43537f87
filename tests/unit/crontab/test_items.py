"""Items: their names, when they are due, and how long their outcomes are kept."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from django_graphile_worker.crontab import CronItem, occurrences, upcoming
from django_graphile_worker.crontab.items import flags_of_run
from tests.support import crontabs
from tests.support.crontabs import minutes, oracle


def test_an_item_in_a_log_is_its_name_and_pattern() -> None:
    assert str(CronItem("task", "@daily", identifier="nightly")) == "nightly (@daily)"
    assert str(CronItem("task", len)) == "task (len)"  # type: ignore[arg-type]


MINUTE = timedelta(minutes=1)


@given(crontabs.patterns(), minutes)
def test_occurrences_are_the_matching_minutes_and_no_others(text: str, moment: datetime) -> None:
    until = moment + timedelta(days=2)
    expected = [
        minute for minute in (moment + MINUTE * count for count in range(1, 2 * 24 * 60 + 1)) if oracle(text, minute)
    ]
    assert list(occurrences(CronItem("task", text), moment, until)) == expected


@pytest.mark.parametrize(
    ("pattern", "after", "expected"),
    [
        ("0 0 29 2 *", "2026-11-15T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
        ("0 0 29 2 *", "2096-03-01T00:00Z", ["2104-02-29T00:00Z"]),
        ("0 0 31 * *", "2026-01-31T00:00Z", ["2026-03-31T00:00Z", "2026-05-31T00:00Z"]),
        ("59 23 31 12 *", "2026-12-31T23:59Z", ["2027-12-31T23:59Z"]),
        ("30 4 * * 1", "2026-11-15T12:00:59Z", ["2026-11-16T04:30Z"]),
        # Either day is enough when both are given.
        ("0 0 13 * 5", "2026-11-01T00:00Z", ["2026-11-06T00:00Z", "2026-11-13T00:00Z", "2026-11-20T00:00Z"]),
        ("0 0 30 2 MON", "2026-02-25T00:00Z", ["2027-02-01T00:00Z"]),
        ("0 0 13 2 5", "2026-02-07T00:00Z", ["2026-02-13T00:00Z", "2026-02-20T00:00Z"]),
    ],
)
def test_known_answers(pattern: str, after: str, expected: list[str]) -> None:
    found = upcoming(CronItem("task", pattern), datetime.fromisoformat(after), len(expected))
    assert list(found) == [datetime.fromisoformat(text) for text in expected]


def test_the_end_of_time_ends_the_search() -> None:
    assert upcoming(CronItem("task", "0 0 1 1 *"), datetime(9999, 6, 1, tzinfo=UTC)) == ()
    paris = CronItem("task", "* * * * *", time_zone="America/New_York")
    assert len(upcoming(paris, datetime(9999, 12, 31, 23, 50, tzinfo=UTC), 20)) < 20


def test_a_callable_is_asked_with_the_local_minute() -> None:
    asked: list[datetime] = []

    def match(moment: datetime) -> bool:
        asked.append(moment)
        return moment.hour == 9 and moment.minute == 30

    item = CronItem("task", match, time_zone="Asia/Tokyo")
    moment = datetime(2026, 11, 15, 0, 30, tzinfo=UTC)
    assert list(occurrences(item, moment - MINUTE, moment)) == [moment]
    assert asked == [moment]
    assert asked[0].isoformat() == "2026-11-15T09:30:00+09:00"
    assert upcoming(item, moment, 2) == (moment + timedelta(days=1), moment + timedelta(days=2))


def test_the_next_time_is_found_quickly() -> None:
    daily = CronItem("task", "7 7 * * *", time_zone=crontabs.ZONES[3])
    moment = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    leap_day = CronItem("task", "0 0 29 2 *", time_zone="Europe/Paris")
    # The best of many runs, and by a yardstick of about a millisecond here: a busy or slow machine must not fail the
    # test, slow code must.
    a_millisecond = best_of(50, lambda: sum(range(50_000)))
    assert best_of(50, lambda: upcoming(leap_day, moment)) < a_millisecond
    assert best_of(50, lambda: upcoming(daily, moment)) < a_millisecond


def best_of(count: int, function: object) -> float:
    assert callable(function)
    durations = []
    for _ in range(count):
        started = time.perf_counter()
        function()
        durations.append(time.perf_counter() - started)
    return min(durations)


NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "zone", "days"),
    [
        ("0 4 * * *", None, 24),
        ("0 4 * * *", "Europe/Berlin", 24),
        ("0 9,10 * * *", None, 12),
        ("0 9 * * 1", None, 168),
        ("0 4 1 1 *", None, 399),
    ],
)
def test_outcome__is_kept_for_about_25_runs(pattern: str, zone: str | None, days: float) -> None:
    (flag,) = flags_of_run(CronItem("report", pattern, time_zone=zone), NOON)
    seconds = int(flag.removeprefix("crontab:"))
    assert days <= seconds / 86_400 <= days + 7


def test_flags_of_the_item__come_first() -> None:
    assert flags_of_run(CronItem("report", "* * * * *", flags=("slow",)), NOON) == ["slow", "crontab:3600"]
