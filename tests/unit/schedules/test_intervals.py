from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.schedules.intervals import interval_in_words, interval_text, parse_interval


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
