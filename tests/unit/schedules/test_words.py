from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from django_graphile_worker.schedules.definition import Definition
from django_graphile_worker.schedules.words import in_words
from tests.support import crontabs


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 9 * * 1-5", "Every weekday at 09:00"),
        ("0 9 * * *", "Every day at 09:00"),
        ("@hourly", "Every hour, on the hour"),
        ("30 * * * *", "Every hour, 30 minutes past"),
        ("1 * * * *", "Every hour, 1 minute past"),
        ("0,30 9,17 * * *", "Every day at 09:00, 09:30, 17:00 and 17:30"),
        ("0 9 * * MON,WED", "Every Monday and Wednesday at 09:00"),
        ("@weekly", "Every Sunday at 00:00"),
        ("0 4 1 * *", "Every month on day 1 at 04:00"),
        ("0 4 1,15 * *", "Every month on days 1 and 15 at 04:00"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("30 * * * 1", "At minute 30 of every hour, on Monday"),
        ("0 9 * 6 *", "At 09:00, in June"),
        ("0 9 1 * 1", "At 09:00, on day 1 of the month or on Monday"),
        ("0 9 * * 1-4", "At 09:00, on Monday to Thursday"),
        ("0 9 */2 * *", "At 09:00, every 2 days of the month, from the 1st"),
    ],
)
def test_cron_line__in_words(cron: str, words: str) -> None:
    assert in_words(Definition(cron=cron, time_zone="Europe/Berlin")) == f"{words} (Europe/Berlin)"


def test_interval__has_no_zone() -> None:
    assert in_words(Definition(interval=timedelta(seconds=10), time_zone="Europe/Berlin")) == "Every 10 seconds"


def test_single_time_and_window__are_shown_on_the_clock_of_the_zone() -> None:
    start = datetime(2026, 7, 1, 10, 0, tzinfo=UTC)
    once = Definition(run_at=start + timedelta(seconds=7), time_zone="Europe/Berlin")
    assert in_words(once) == "Once, at 2026-07-01 12:00:07 (Europe/Berlin)"
    window = Definition(cron="@daily", starts_at=start, ends_at=start + timedelta(days=200))
    assert in_words(window) == "Every day at 00:00 (UTC), from 2026-07-01 10:00 (UTC), until 2027-01-17 10:00 (UTC)"


def test_nothing__is_never_due() -> None:
    assert in_words(Definition()) == "Never"


@given(crontabs.patterns())
def test_every_cron_line__has_words(cron: str) -> None:
    assert in_words(Definition(cron=cron)).endswith(" (UTC)")
