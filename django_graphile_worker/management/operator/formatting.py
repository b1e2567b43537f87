"""Formats the values of ``--json`` for people: tables, facts, and times in the current time zone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from django.core.management.color import Style
from django.utils import timezone

from django_graphile_worker.text import escaped, in_largest_unit, readable_duration, shown

GAP = "  "
EMPTY = "-"
# On a terminal, longer cells are cut. Ids of jobs and workers are shorter.
MAX_CELL = 40
DAY = 86_400
# The colours of states, by the names of Django's styles.
STATE_STYLES = {
    **dict.fromkeys(("ready", "alive", "enabled", "succeeded"), "SUCCESS"),
    **dict.fromkeys(("running", "unregistered"), "MIGRATE_LABEL"),
    **dict.fromkeys(("limited", "retrying", "stopping", "paused"), "WARNING"),
    **dict.fromkeys(("failed", "silent", "failing", "unknown task"), "ERROR"),
}

Values = Mapping[str, Any]
# A column of a table: the name of a value, or a heading and a function of all values.
Column = str | tuple[str, Callable[[Values], Any]]
Columns = Sequence[Column]


def capped(name: str) -> Column:
    """Return the column of a number that was counted up to a limit: ``42``, or ``1000+``."""
    return name.upper(), lambda values: f"{values[name]}{'+' if values['is_capped'] else ''}"


def table(rows: Sequence[Values], columns: Columns, now: datetime, style: Style, *, width: int | None = None) -> str:
    """Return the rows below the headings.

    On a terminal with this ``width``, empty columns are left out, and long cells and lines are cut.
    """
    named = [_named(column) for column in columns]
    found = [[heading, *(_text(get(row), now, brief) or EMPTY for row in rows)] for heading, get in named]
    if width is not None:
        found = [column for column in found if any(text != EMPTY for text in column[1:])]
        found = [*([_cut(text) for text in column] for column in found[:-1]), found[-1]]
    sizes = [max(map(len, column)) for column in found]
    lines = [
        GAP.join(f"{text:<{size}}" for text, size in zip(texts, sizes, strict=True))[:width].rstrip()
        for texts in zip(*found, strict=True)
    ]
    place = next((place for place, (heading, *_) in enumerate(found) if heading == "STATE"), None)
    if place is not None:
        start = sum(sizes[:place]) + place * len(GAP)
        end = start + sizes[place]
        lines = [line[:start] + _painted(line[start:end], style) + line[end:] for line in lines]
    return "\n".join(lines)


def _named(column: Column) -> tuple[str, Callable[[Values], Any]]:
    if not isinstance(column, str):
        return column
    if column.endswith("error"):
        return _words(column).upper(), lambda values: brief_error(values[column])
    return _words(column).upper(), itemgetter(column)


def _words(name: str) -> str:
    return name.removesuffix("_seconds").replace("_", " ")


def facts(values: Values, now: datetime, style: Style) -> str:
    """Return the names and values that are not empty, one pair for each line; a list has a line for each item."""
    pairs = [
        (_words(name), text)
        for name, value in values.items()
        for each in (value if isinstance(value, list) else [value])
        if (text := _text(each, now, both))
    ]
    size = max(len(name) for name, _ in pairs)
    return "\n".join(
        f"{name:<{size}}{GAP}{_painted(text, style) if name in ('state', 'status') else text}" for name, text in pairs
    )


def _text(value: Any, now: datetime, time: Callable[[datetime, datetime], str]) -> str:
    """Return a value for people. Each number with a fraction is one of seconds."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return time(value, now)
    if isinstance(value, float):
        return readable_duration(value) if value else "0 s"
    if isinstance(value, list | tuple | frozenset):
        return shown(", ".join(map(str, value)))
    return shown(json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


def _painted(state: str, style: Style) -> str:
    name = STATE_STYLES.get(state.rstrip())
    return getattr(style, name)(state) if name else state


def indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())


def counted(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def brief_error(error: str | None) -> str:
    """Return the first line of an error, with the name of its class but not of its module."""
    line = (error or "").strip().partition("\n")[0]
    return re.sub(r"^(?:[^\W\d]\w*\.)+(?=[^\W\d]\w*(?::|$))", "", line)


def aware(moment: datetime) -> datetime:
    """Return a time from the database with its time zone; it is naive if the project has USE_TZ = False."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def absolute(moment: datetime) -> str:
    """Return the time in the current time zone."""
    return aware(moment).astimezone(timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")


def relative(moment: datetime, now: datetime) -> str:
    """Return the distance from now: ``in 5 m`` or ``3 h ago``."""
    seconds = (aware(moment) - aware(now)).total_seconds()
    if round(seconds) == 0:
        return "now"
    return f"in {in_largest_unit(seconds)}" if seconds > 0 else f"{in_largest_unit(seconds)} ago"


def both(moment: datetime, now: datetime) -> str:
    """Return ``2026-05-01 12:00:00 (in 5 m)``."""
    return f"{absolute(moment)} ({relative(moment, now)})"


def brief(moment: datetime, now: datetime) -> str:
    """Return the distance from now if it is less than a day, else the time to the minute."""
    is_near = abs((aware(moment) - aware(now)).total_seconds()) < DAY
    return relative(moment, now) if is_near else absolute(moment)[:-3]


def iso(moment: datetime) -> str:
    """Return the time for programs, always in UTC."""
    return aware(moment).astimezone(UTC).isoformat()
