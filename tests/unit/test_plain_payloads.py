"""Which payloads are encoded without code of the project."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.utils.functional import lazy

from django_graphile_worker.plain_payloads import are_plain

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


class Text(str):
    __slots__ = ()


class Mapping(dict[str, Any]):
    pass


class Zone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(0)

    dst = utcoffset

    def tzname(self, moment: datetime | None) -> str:
        return "own"


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        1.5,
        "text",
        {},
        {"a": [1, (2, {"b": None})], 1: "x", None: []},
        [MOMENT, MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=ZoneInfo("UTC"))],
        [MOMENT.replace(tzinfo=timezone(timedelta(hours=1))), time(1), date(2030, 1, 1), timedelta(1)],
        {"a": UUID(int=1), "b": Decimal("1.5")},
    ],
)
def test_plain(value: Any) -> None:
    assert are_plain([value])
    assert are_plain([1, {}, value])


@pytest.mark.parametrize(
    "value",
    [
        Text("a"),
        {"a": Text("a")},
        {Text("a"): 1},
        Mapping(a=1),
        [[Mapping()]],
        {1, 2},
        b"bytes",
        Colour.RED,
        [Size.SMALL],
        lazy(str, str)(1),
        MOMENT.replace(tzinfo=Zone()),
        [time(1, tzinfo=Zone())],
        object(),
    ],
)
def test_not_plain(value: Any) -> None:
    assert not are_plain([value])
    assert not are_plain([1, {}, value])
    assert not are_plain([{"a": [value, 1]}, "b"])


def test_a_cycle__is_not_plain() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert not are_plain([cycle])
