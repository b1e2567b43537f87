"""Hypothesis strategies for crontabs, and an independent implementation of the rules of patterns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.patterns import (
    DATE,
    HOUR,
    MINUTE,
    MONTH,
    MONTH_NAMES,
    SHORTHANDS,
    WEEKDAY,
    WEEKDAY_NAMES,
    Field,
    parse_pattern,
)
from django_graphile_worker.exceptions import CrontabError

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
ZONES = ("Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")


@st.composite
def parts(draw: st.DrawFn, kind: Field) -> str:
    largest = 7 if kind is WEEKDAY else kind.largest
    form = draw(st.sampled_from(["*", "number", "number", "range", "step", "range step", "name"]))
    first = draw(st.integers(kind.smallest, largest - 1))
    last = draw(st.integers(first + 1, largest))
    step = draw(st.integers(1, 70))
    if form == "name" and kind.names:
        name = draw(st.sampled_from(sorted(kind.names)))
        return draw(st.sampled_from([name, name.lower()]))
    written = {"*": "*", "range": f"{first}-{last}", "step": f"*/{step}", "range step": f"{first}-{last}/{step}"}
    return written.get(form, str(draw(st.integers(kind.smallest, largest))))


def fields(kind: Field) -> st.SearchStrategy[str]:
    return st.lists(parts(kind), min_size=1, max_size=3).map(",".join)


def _is_possible(text: str) -> bool:
    try:
        parse_pattern(text)
    except CrontabError:
        return False
    return True


def patterns() -> st.SearchStrategy[str]:
    five = st.tuples(*(fields(kind) for kind in (MINUTE, HOUR, DATE, MONTH, WEEKDAY))).map(" ".join)
    return (five | st.sampled_from(sorted(SHORTHANDS))).filter(_is_possible)


def names(more: str) -> st.SearchStrategy[str]:
    rest = st.text(LETTERS + "0123456789" + more, max_size=12)
    return st.tuples(st.sampled_from(LETTERS), rest).map("".join)


# Text that PostgreSQL can store: without NUL and halves of surrogate pairs.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=8,
)


@st.composite
def items(draw: st.DrawFn) -> CronItem:
    """Generate items that a line of a crontab can express, with every default filled in."""
    task = draw(names("-:/"))
    return CronItem(
        task=task,
        match=draw(patterns()),
        payload=draw(st.none() | st.dictionaries(texts, json_values, max_size=3)),
        identifier=draw(st.just(task) | names("-")),
        backfill_period=draw(st.integers(0, 10**9).map(lambda seconds: timedelta(seconds=seconds))),
        max_attempts=draw(st.none() | st.integers(1, 32_767)),
        queue_name=draw(st.none() | st.text(LETTERS + "-:0123456789", min_size=1, max_size=12)),
        priority=draw(st.none() | st.integers(-32_768, 32_767)),
        job_key=draw(st.none() | texts.filter(bool)),
        job_key_mode=draw(st.sampled_from([None, "replace", "preserve_run_at"])),
        flags=draw(
            st.none()
            | st.lists(texts.filter(lambda text: text and "," not in text), min_size=1, max_size=3, unique=True).map(
                tuple
            )
        ),
        time_zone=draw(st.none() | st.sampled_from(ZONES)),
    )


RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
minutes = st.datetimes(datetime(1999, 1, 1), datetime(2101, 1, 1)).map(  # noqa: DTZ001
    lambda moment: moment.replace(second=0, microsecond=0, tzinfo=UTC)
)


def oracle(text: str, moment: datetime) -> bool:
    """Return whether a pattern includes a minute, by the slow method: each field as a set of values."""
    fields = value_sets(text)
    values = (moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)
    minute, hour, date, month, weekday = (value in field for value, field in zip(values, fields, strict=True))
    both_given = fields[2] != set(range(1, 32)) and fields[4] != set(range(7))
    return minute and hour and month and ((date or weekday) if both_given else (date and weekday))


@cache
def value_sets(text: str) -> list[frozenset[int]]:
    fields = zip(SHORTHANDS.get(text, text).split(), RANGES, strict=True)
    return [
        frozenset(value for part in field.split(",") for value in part_values(part, smallest, largest))
        for field, (smallest, largest) in fields
    ]


def part_values(part: str, smallest: int, largest: int) -> Iterator[int]:
    span, _, step = part.partition("/")
    first, _, last = span.partition("-")
    low, high = (smallest, largest) if span == "*" else (number(first), number(last or first))
    if high < low:
        high = 7
    for value in range(low, high + 1):
        if (value - low) % int(step or 1) == 0:
            yield value % 7 if largest == 6 else value


def number(text: str) -> int:
    if text.upper() in MONTH_NAMES:
        return MONTH_NAMES.index(text.upper()) + 1
    return WEEKDAY_NAMES.index(text.upper()) if text.upper() in WEEKDAY_NAMES else int(text)
