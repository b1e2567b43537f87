"""Conversion between values of Python and of PostgreSQL: times, flags and arrays.

Python cannot represent every stored value (the year 20000, an infinity, JSON that nests too deeply). The expressions
here make any column readable, and the readers return the nearest value that Python has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils import timezone

from django_graphile_worker.jobs import Job

FIRST = "timestamptz '0001-01-02 00:00:00+00'"
LAST = "timestamptz '9999-12-30 23:59:59.999999+00'"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def as_text(column: str) -> str:
    """Return an expression that reads the column as text, which the reader decodes value by value."""
    return f"{column}::pg_catalog.text"


def within_python_years(column: str) -> str:
    """Return an expression that limits a time to the years 1 to 9999 in every time zone, also an infinite time."""
    return f"case when {column} < {FIRST} then {FIRST} when {column} > {LAST} then {LAST} else {column} end"


def microseconds_of(moment: str) -> str:
    """Return an expression for a time as a number: text would depend on the session's DateStyle."""
    return f"(extract(epoch from {moment}) * 1000000::numeric)::bigint"


def moment_of(microseconds: int) -> datetime:
    """Return the time of a number that ``microseconds_of`` made."""
    return EPOCH + timedelta(microseconds=microseconds)


@cache
def time_reader() -> Callable[[float], datetime]:
    """Return the function that converts seconds since 1970 to a time, aware or naive as ``USE_TZ`` decides.

    It is chosen once, because reading a setting takes long.
    """
    return _to_datetime if settings.USE_TZ else lambda epoch: naive(_to_datetime(epoch))


@receiver(setting_changed, dispatch_uid="graphile_worker.time_reader")
def _forget_reader(*, setting: str, **kwargs: Any) -> None:
    if setting == "USE_TZ":
        time_reader.cache_clear()


def _to_datetime(epoch: float) -> datetime:
    """Return the time, or for a date that Python cannot represent the nearest date that it can."""
    try:
        return datetime.fromtimestamp(epoch, UTC)
    except (OverflowError, ValueError, OSError):
        # NaN is not less than 0.
        return EARLIEST if epoch < 0 else LATEST


def naive(moment: datetime) -> datetime:
    """Return the time without its zone, in the site's own zone, for sites with ``USE_TZ = False``.

    Django's own connections return such times; the worker's connections do not use that setting. A naive time stays as
    it is.
    """
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(timezone.get_default_timezone()).replace(tzinfo=None)
    except OverflowError:
        # The first or last time that Python can represent, in a zone where it would be a day beyond.
        return moment.replace(tzinfo=None)


def with_naive_times(job: Job) -> Job:
    """Return the job with naive times, for sites with ``USE_TZ = False``."""
    return replace(
        job,
        run_at=naive(job.run_at),
        created_at=naive(job.created_at),
        updated_at=naive(job.updated_at),
        locked_at=None if job.locked_at is None else naive(job.locked_at),
    )


def flags_from(text: str | None) -> frozenset[str]:
    """Return the flags in a column of type jsonb that was read as text.

    They are the keys of an object, the strings in an array, or a string itself: PostgreSQL's operator ``?`` finds them
    there too. add_job stores an object, but any program can write the column. Text that cannot be decoded has no flags.
    """
    if not text:
        return frozenset()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(filter(_is_text, value)) if isinstance(value, dict | list) else frozenset()


def json_object(text: str | None) -> dict[str, Any]:
    """Return an object that any program can have written; empty for other values, and if Python cannot decode it."""
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        # A number with thousands of digits, or thousands of levels.
        return {}
    return found if isinstance(found, dict) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def int_array(numbers: Iterable[int]) -> str:
    """Return the text of an array, in a tenth of the time that a driver needs to convert a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


def text_array(texts: Iterable[str]) -> str:
    """Return the text of an array of texts; see ``int_array``."""
    return "{" + ",".join(map(_Quoted().__getitem__, texts)) + "}"


def nullable_array(numbers: Iterable[float | None]) -> str:
    """Return the text of an array of numbers, in which None is null."""
    return "{" + ",".join(["NULL" if number is None else str(number) for number in numbers]) + "}"


def nullable_text_array(texts: Iterable[str | None]) -> str:
    """Return the text of an array of texts, most of which are different, in which None is null."""
    return "{" + ",".join(["NULL" if text is None else _quoted(text) for text in texts]) + "}"


def boolean_array(values: Iterable[object]) -> str:
    """Return the text of an array of the truth of values."""
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Quoted(dict[str, str]):
    """Texts in quotes. Each text is quoted once, because an array mostly repeats a few texts."""

    def __missing__(self, text: str) -> str:
        quoted = self[text] = _quoted(text)
        return quoted
