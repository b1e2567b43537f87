from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given

from django_graphile_worker.crontab import CronItem, describe
from django_graphile_worker.crontab.describe import describe_pattern
from django_graphile_worker.crontab.patterns import parse_pattern
from tests.support import crontabs


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("0 * * * *", "At minute 0 of every hour"),
        ("0,30 * * * *", "At minutes 0 and 30 of every hour"),
        ("30 4 * * *", "At 04:30"),
        ("0 4,16 * * *", "At 04:00 and 16:00"),
        ("0 */2 * * *", "At minute 0 of every 2 hours"),
        ("*/10 9-17 * * MON-FRI", "Every 10 minutes of hours 9 to 17, on Monday to Friday"),
        ("0 0 1 * *", "At 00:00, on day 1 of the month"),
        ("0 0 1,15 * 1", "At 00:00, on days 1 and 15 of the month or on Monday"),
        ("0 0 */2 * *", "At 00:00, every 2 days of the month, from the 1st"),
        ("0 0 29 2 *", "At 00:00, on day 29 of the month, in February"),
        ("0 0 * 6-8,12 0", "At 00:00, on Sunday, in June to August and December"),
    ],
)
def test_a_pattern_in_words(pattern: str, words: str) -> None:
    assert describe_pattern(parse_pattern(pattern)) == words
    assert describe(CronItem("task", pattern)) == f"{words} (UTC)"


def test_the_time_zone_is_named() -> None:
    assert describe(CronItem("task", "@daily", time_zone="Asia/Tokyo")) == "At 00:00 (Asia/Tokyo)"


def test_a_callable_is_named() -> None:
    def on_holidays(moment: datetime) -> bool:
        return False

    assert describe(CronItem("task", on_holidays)).endswith("on_holidays() returns true (UTC)")


@given(crontabs.patterns())
def test_every_pattern_has_words(text: str) -> None:
    assert describe_pattern(parse_pattern(text))
