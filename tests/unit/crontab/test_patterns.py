from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings

from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.crontab.patterns import SHORTHANDS, parse_pattern
from tests.support import crontabs
from tests.support.crontabs import minutes, oracle


@settings(deadline=None)
@given(crontabs.patterns(), minutes)
def test_a_pattern_matches_as_the_oracle_says(text: str, moment: datetime) -> None:
    assert parse_pattern(text).matches(moment) == oracle(text, moment)


@settings(deadline=None)
@given(crontabs.patterns())
def test_a_pattern_survives_being_written(text: str) -> None:
    pattern = parse_pattern(text)
    assert parse_pattern(str(pattern)) == pattern


@pytest.mark.parametrize(("shorthand", "pattern"), SHORTHANDS.items())
def test_a_shorthand_stands_for_its_pattern(shorthand: str, pattern: str) -> None:
    assert parse_pattern(shorthand) == parse_pattern(shorthand.upper()) == parse_pattern(pattern)
    assert parse_crontab(f"{shorthand} task ?fill=1h")[0].match == shorthand
