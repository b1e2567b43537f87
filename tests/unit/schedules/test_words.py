"""Intervals as text, and sentences that say when a schedule is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words, interval_in_words, interval_text, parse_interval
from tests.support import crontabs


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("every 10 s", 10),
        ("Every 10 Seconds", 10),
        ("@every 1h30m", 5400),
        ("90 minutes", 5400),
        ("every minute", 60),
        ("@every day", 86_400),
        ("every 2 weeks", 1_209_600),
        ("1 day, 2 hours and 3 min", 93_780),
        ("1.5 h", 5400),
        ("1.25s", 1.25),
        ("  every   5 min ", 300),
    ],
)
def test_phrase__is_read(text: str, seconds: float) -> None:
    assert parse_interval(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("90", "no unit"),
        ("every 90", "no unit"),
        ("", "expected an interval like"),
        ("every", "expected an interval like"),
        ("10 parsecs", "'parsecs' is none of"),
        ("1 month", "not always as long"),
        ("1h 2h", "twice"),
        ("1h,", "expected an interval like"),
        ("0 s", "1 second to 100 years"),
        ("0.5 s", "1 second to 100 years"),
        ("200000 d", "1 second to 100 years"),
        ("@hourly", "cron line"),
        ("*/5 * * * *", "cron line"),
        ("0 4 * * 1", "cron line"),
        ("-5 s", "expected an interval like"),
    ],
)
def test_other_text__is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_interval(text)


@pytest.mark.parametrize(
    ("seconds", "short", "words"),
    [
        (1, "1s", "Every second"),
        (10, "10s", "Every 10 seconds"),
        (60, "1m", "Every minute"),
        (3600, "1h", "Every hour"),
        (5400, "1h30m", "Every 90 minutes"),
        (129_600, "1d12h", "Every 36 hours"),
        (121, "2m1s", "At intervals of 2 minutes 1 second"),
        (61.5, "1m1.5s", "At intervals of 1 minute 1.5 seconds"),
        (604_800, "1w", "Every week"),
        (172_800, "2d", "Every 2 days"),
        (1.5, "1.5s", "Every 1.5 seconds"),
        (90_061, "1d1h1m1s", "At intervals of 1 day 1 hour 1 minute 1 second"),
    ],
)
def test_interval__is_written(seconds: float, short: str, words: str) -> None:
    assert interval_text(timedelta(seconds=seconds)) == short
    assert interval_in_words(timedelta(seconds=seconds)) == words


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=36_500)))
def test_every_interval__is_read_as_it_was_written(interval: timedelta) -> None:
    assert parse_interval(interval_text(interval)) == interval


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
