from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from django_graphile_worker.admin import formatting
from django_graphile_worker.sql.inspection.job_list import Count

NOW = datetime(2026, 11, 15, 14, 9, 1, tzinfo=UTC)
NO_BREAK = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, formatting.EMPTY_VALUE),
        (-1, "0 ms"),
        (0.0001, "<1 ms"),
        (0.35, "350 ms"),
        (0.9996, "1.0 s"),
        (2.44, "2.4 s"),
        (9.99, "10 s"),
        (59.6, "1 min"),
        (252, "4 min 12 s"),
        (300, "5 min"),
        (9 * 3600 + 22, "9 h"),
        (2 * 3600 + 10, "2 h"),
        (2 * 3600 + 5 * 60 + 59, "2 h 5 min"),
        (86_400 + 59 * 60, "1 d"),
        (86_400 * 1_200 + 7 * 3600, "1,200 d 7 h"),
    ],
)
def test_duration__has_at_most_two_adjacent_units(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


def test_duration__can_have_one_unit() -> None:
    assert formatting.duration(252, 1) == "4 min"


@pytest.mark.parametrize(
    ("language", "number", "decimal", "percentage"),
    [
        ("en", "1,234,567", "2.4 s", "12%"),
        ("de", "1.234.567", "2,4 s", f"12{NO_BREAK}%"),
        ("fr", f"1{NO_BREAK}234{NO_BREAK}567", "2,4 s", f"12{NO_BREAK}%"),
    ],
)
def test_numbers__are_those_of_the_language(language: str, number: str, decimal: str, percentage: str) -> None:
    with translation.override(language):
        assert formatting.number(1_234_567).replace("\N{NARROW NO-BREAK SPACE}", NO_BREAK) == number
        assert formatting.count(Count(number=1_234_567, is_more=True)).endswith("+")
        assert formatting.capped_number(1_234_568, 1_234_567) == f"{formatting.number(1_234_567)}+"
        assert formatting.duration(2.4) == decimal
        assert formatting.percentage(0.123) == percentage
        assert formatting.byte_size(123_456).startswith(formatting.number(120.6, 1))


def test_percentage__of_a_small_part_is_not_zero() -> None:
    assert (formatting.percentage(0.0), formatting.percentage(0.001), formatting.percentage(1.0)) == (
        "0%",
        "<1%",
        "100%",
    )


@pytest.mark.parametrize(
    ("language", "zone", "text"),
    [
        ("en", "UTC", "Nov. 15, 2026, 2:09:01 p.m. UTC"),
        ("en", "America/New_York", "Nov. 15, 2026, 9:09:01 a.m. EST"),
        ("de", "Europe/Berlin", "15. November 2026 15:09:01 CET"),
        ("fr", "Europe/Paris", "15 novembre 2026 15:09:01 CET"),
        ("es", "UTC", "15 de noviembre de 2026 a las 14:09:01 UTC"),
    ],
)
def test_exact_time__has_the_format_of_the_language_and_the_zone_of_the_user(
    language: str, zone: str, text: str
) -> None:
    with translation.override(language), timezone.override(zone):
        assert formatting.exact_time(NOW) == text
        assert f'title="{text}"' in formatting.relative_time(NOW, NOW + timedelta(hours=9, seconds=22))


def test_exact_time__leaves_zero_seconds_out() -> None:
    assert formatting.exact_time(NOW.replace(minute=0, second=0)) == "Nov. 15, 2026, 2 p.m. UTC"


def test_exact_time__of_a_project_without_time_zones_names_none() -> None:
    assert formatting.exact_time(NOW.replace(tzinfo=None)) == "Nov. 15, 2026, 2:09:01 p.m."


def test_in_both_zones__names_the_other_zone_only_if_its_clocks_differ() -> None:
    paris = ZoneInfo("Europe/Paris")
    with timezone.override("Europe/Berlin"):
        assert formatting.in_both_zones(NOW, paris) == "Nov. 15, 2026, 3:09:01 p.m. CET"
    with timezone.override("UTC"):
        shown = "Nov. 15, 2026, 2:09:01 p.m. UTC (Nov. 15, 2026, 3:09:01 p.m. CET)"
        assert formatting.in_both_zones(NOW, paris) == shown
        due = NOW.replace(minute=30, second=0)
        assert formatting.in_both_zones(due, paris) == "Nov. 15, 2026, 2:30 p.m. UTC (3:30 p.m. CET)"
        tokyo = "Nov. 15, 2026, 4:30 p.m. UTC (Nov. 16, 2026, 1:30 a.m. JST)"
        assert formatting.in_both_zones(due.replace(hour=16), ZoneInfo("Asia/Tokyo")) == tokyo


def test_clock_time_and_day__are_in_the_zone_of_the_user() -> None:
    with translation.override("de"), timezone.override("Asia/Tokyo"):
        assert (formatting.clock_time(NOW), formatting.day(NOW)) == ("23:09", "15. November")


def test_relative_time__says_how_long_ago() -> None:
    with translation.override("de"):
        assert ">vor 9 h<" in formatting.relative_time(NOW, NOW + timedelta(hours=9, seconds=22))
        assert ">in 2 h 10 min<" in formatting.relative_time(NOW, NOW - timedelta(hours=2, minutes=10))


@pytest.mark.parametrize(
    ("number", "shown"),
    [(940, "900+"), (5_000, "5,000+"), (5_940, "5,000+"), (19_999, "10,000+"), (7, "7+"), (0, "0+")],
)
def test_count_that_was_cut__is_a_round_number_that_is_certain(number: int, shown: str) -> None:
    assert formatting.count(Count(number=number, is_more=True)) == shown
    assert formatting.count(Count(number=number, is_more=False)) == formatting.number(number)


def test_exact_time__is_that_of_the_zone_and_the_language_however_often_it_was_shown() -> None:
    again = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    for _ in range(2):
        assert formatting.exact_time(again, ZoneInfo("Europe/Berlin")) == "Oct. 25, 2026, 2:30 a.m. CEST"
        assert formatting.exact_time(again + timedelta(hours=1), ZoneInfo("Europe/Berlin")).endswith("2:30 a.m. CET")
        assert formatting.exact_time(again, UTC) == "Oct. 25, 2026, 12:30 a.m. UTC"
        with translation.override("de"):
            assert formatting.exact_time(again, UTC) == "25. Oktober 2026 00:30 UTC"
