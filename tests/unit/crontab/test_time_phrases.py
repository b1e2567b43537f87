from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.crontab.time_phrases import format_time_phrase, parse_time_phrase


@settings(deadline=None)
@given(st.integers(0, 36_500 * 86_400))
def test_a_period_survives_being_written(seconds: int) -> None:
    period = timedelta(seconds=seconds)
    assert parse_time_phrase(format_time_phrase(period)) == period


@pytest.mark.parametrize("period", [timedelta(microseconds=1), timedelta(seconds=-1)])
def test_a_period_without_a_phrase_is_refused(period: timedelta) -> None:
    with pytest.raises(ValueError, match="expected a period of whole seconds"):
        format_time_phrase(period)


def test_a_year_is_365_days_in_a_time_phrase() -> None:
    [item] = parse_crontab("* * * * * a ?fill=1y2w")
    assert item.period == timedelta(days=365 + 14)
