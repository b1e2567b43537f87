"""Values of PostgreSQL that Python cannot hold, and arrays as PostgreSQL writes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from django_graphile_worker.sql.codecs import (
    EARLIEST,
    LATEST,
    boolean_array,
    flags_from,
    int_array,
    naive,
    nullable_array,
    nullable_text_array,
    text_array,
    time_reader,
)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (None, set()),
        ("", set()),
        ("{}", set()),
        ('{"slow": true, "eu": false}', {"slow", "eu"}),
        # Not written by add_job, but the operator ?| finds the strings in the same way.
        ('["slow", 1]', {"slow"}),
        ('"slow"', {"slow"}),
        ("7", set()),
        ("null", set()),
    ],
)
def test_flags__are_what_postgresql_finds_in_the_column(text: str | None, flags: set[str]) -> None:
    assert flags_from(text) == flags


@pytest.mark.parametrize("text", ['{"slow": tr', "[" * 100_000, f'{{"a": {"1" * 5000}}}'])
def test_flags__that_cannot_be_decoded_are_none(text: str) -> None:
    assert flags_from(text) == frozenset()


@pytest.mark.parametrize(
    ("epoch", "moment"),
    [
        (0.0, datetime(1970, 1, 1, tzinfo=UTC)),
        (math.inf, LATEST),
        (-math.inf, EARLIEST),
        (math.nan, LATEST),
        (1e18, LATEST),
        (-1e18, EARLIEST),
    ],
)
def test_time__that_python_cannot_hold_becomes_the_nearest(epoch: float, moment: datetime) -> None:
    assert time_reader()(epoch) == moment


def test_times_are_naive__when_the_site_uses_no_time_zones(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"

    assert time_reader()(0.0) == (nine := datetime.fromisoformat("1970-01-01T09:00"))
    assert naive(LATEST) == LATEST.replace(tzinfo=None)
    assert naive(nine) == nine


def test_arrays__are_written_as_postgresql_reads_them() -> None:
    assert int_array([]) == "{}"
    assert int_array([1, -2]) == "{1,-2}"
    assert text_array(["a", 'b"c', "d\\e", "a", ""]) == '{"a","b\\"c","d\\\\e","a",""}'


def test_arrays_with_nulls__are_written_as_postgresql_reads_them() -> None:
    assert nullable_array([1.5, None, 3]) == "{1.5,NULL,3}"
    assert nullable_text_array(['{"a":"b\\\\"}', None, "NULL", ""]) == r'{"{\"a\":\"b\\\\\"}",NULL,"NULL",""}'
    assert boolean_array([1, 0, None, "x"]) == "{t,f,f,t}"
