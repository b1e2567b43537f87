"""Patterns and their fields."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given

from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.patterns import (
    DATE,
    HOUR,
    MINUTE,
    MONTH,
    SHORTHANDS,
    WEEKDAY,
    Field,
    parse_pattern,
    read_field,
)
from tests.support import crontabs
from tests.support.crontabs import minutes, oracle


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (MINUTE, "*", tuple(range(60))),
        (MINUTE, "*/20", (0, 20, 40)),
        (MINUTE, "*/99", (0,)),
        (MINUTE, "5,1,3,3,05", (1, 3, 5)),
        (MINUTE, "10-13,58-59", (10, 11, 12, 13, 58, 59)),
        (MINUTE, "1-30/10", (1, 11, 21)),
        (HOUR, "*/5", (0, 5, 10, 15, 20)),
        # Steps count from the smallest value of the field, as the original's do.
        (DATE, "*/10", (1, 11, 21, 31)),
        (MONTH, "*/5", (1, 6, 11)),
        (MONTH, "jan,MAR-May,12", (1, 3, 4, 5, 12)),
        (WEEKDAY, "*/2", (0, 2, 4, 6)),
        (WEEKDAY, "7", (0,)),
        (WEEKDAY, "0,7", (0,)),
        (WEEKDAY, "5-7", (0, 5, 6)),
        (WEEKDAY, "0-7", tuple(range(7))),
        (WEEKDAY, "MON-FRI", (1, 2, 3, 4, 5)),
        (WEEKDAY, "Fri-sun", (0, 5, 6)),
        (WEEKDAY, "sun-tue", (0, 1, 2)),
        (WEEKDAY, "SUN", (0,)),
    ],
)
def test_a_field_stands_for_its_values(kind: Field, text: str, values: tuple[int, ...]) -> None:
    collector = MistakeCollector()
    assert read_field(kind, text, collector, Position()) == values
    assert not collector.mistakes


@given(crontabs.patterns(), minutes)
def test_a_pattern_matches_as_the_oracle_says(text: str, moment: datetime) -> None:
    assert parse_pattern(text).matches(moment) == oracle(text, moment)


@pytest.mark.parametrize(("shorthand", "pattern"), SHORTHANDS.items())
def test_a_shorthand_stands_for_its_pattern(shorthand: str, pattern: str) -> None:
    assert parse_pattern(shorthand) == parse_pattern(shorthand.upper()) == parse_pattern(pattern)
    assert parse_crontab(f"{shorthand} task ?fill=1h")[0].match == shorthand
