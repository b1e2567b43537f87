from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_graphile_worker.crontab import CronItem, format_item, parse_cron_items, parse_crontab
from django_graphile_worker.crontab.durations import format_phrase, parse_phrase
from django_graphile_worker.crontab.patterns import parse_pattern
from django_graphile_worker.exceptions import CrontabError
from tests.unit.crontab import strategies


@settings(deadline=None)
@given(strategies.items())
@example(CronItem("task", "* * * * *", {"?": "{&"}, "task", timedelta(0), job_key="a&b=c+d %?#é {", flags=("&", "=")))
def test_reading_what_was_written_gives_the_item_back(item: CronItem) -> None:
    assert parse_crontab(format_item(item)) == (item,)


@settings(deadline=None)
@given(strategies.items())
def test_checking_a_checked_item_changes_nothing(item: CronItem) -> None:
    assert parse_cron_items([item]) == (item,)


@settings(deadline=None)
@given(strategies.patterns())
def test_a_pattern_survives_being_written(text: str) -> None:
    pattern = parse_pattern(text)
    assert parse_pattern(str(pattern)) == pattern


@settings(deadline=None)
@given(st.integers(0, 36_500 * 86_400))
def test_a_period_survives_being_written(seconds: int) -> None:
    period = timedelta(seconds=seconds)
    assert parse_phrase(format_phrase(period)) == period


@pytest.mark.parametrize("period", [timedelta(microseconds=1), timedelta(seconds=-1)])
def test_a_period_without_a_phrase_is_refused(period: timedelta) -> None:
    with pytest.raises(ValueError, match="expected a period of whole seconds"):
        format_phrase(period)


def test_a_callable_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="expected a cron item with a pattern"):
        format_item(CronItem("task", lambda moment: True))


@settings(deadline=None)
@given(st.text(max_size=60) | st.lists(st.sampled_from("*/-,0159 \t?{}:='\"aZ@&%\n"), max_size=40).map("".join))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    try:
        items = parse_crontab(text)
    except CrontabError:
        return
    assert all(parse_crontab(format_item(item)) == (item,) for item in items)
