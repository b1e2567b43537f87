"""How far back a search of the history reads, so that it finds enough rows and not many more.

No index has the rows in the order of time: a B-tree of the times would cost the statements that end jobs a quarter of
what the history costs them. The BRIN index finds the rows of a span of time, and this module finds the span, by
counting the rows of a few spans up to a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from django_graphile_worker.sql.statements import statement

# Seconds.
FIRST_SPAN = 1.0
# A span of a century has all rows.
MAX_SPAN = 3.2e9
# Two spans that differ by less are the same: the rows of a statement mostly have the same time.
SHORTEST_DIFFERENCE = 0.001
# A span that has too few rows grows at least and at most so many times.
MIN_GROWTH, MAX_GROWTH = 2.0, 64.0
# How many rows a span may have beyond twice those that are enough. The BRIN index finds as many at once.
MAX_BEYOND = 1_000

LIMITS = """/* gw:history-limits */
select extract(epoch from least(%(newest)s::timestamptz, clock_timestamp()))::float8,
    extract(epoch from greatest(%(oldest)s::timestamptz, %(floor)s::timestamptz))::float8"""

COUNT = """/* gw:history-span */
select count(*) from (
    select from :SCHEMA._private_history as history
    where history.ended_at >= to_timestamp(%(beginning)s::float8) {bounds} limit %(most_counted)s::int) as found"""


def find_beginning(cursor: Any, *, schema: str, bounds: str, parameters: Mapping[str, Any], enough: int) -> float:
    """Return from which time on, in seconds since 1970, enough rows are within the bounds; minus infinity for all.

    The bounds leave nothing that is newer than the parameter ``newest``, or older than ``oldest`` and ``floor``.
    """
    cursor.execute(statement(LIMITS, schema), parameters)
    end, oldest = cursor.fetchone()
    longest, most = min(max(end - oldest, 0.0), MAX_SPAN), 2 * enough + MAX_BEYOND

    def beginning_of(span: float) -> float:
        return -math.inf if span >= longest else end - span

    def count(span: float) -> int:
        counted = {"beginning": beginning_of(span), "most_counted": most}
        cursor.execute(statement(COUNT.format(bounds=bounds), schema), {**parameters, **counted})
        return int(cursor.fetchone()[0])

    return beginning_of(find_span(count, longest=longest, enough=enough, most=most))


def find_span(count: Callable[[float], int], *, longest: float, enough: int, most: int) -> float:
    """Return a span that has at least ``enough`` rows and, if there is one, fewer than ``most``.

    ``count`` returns how many rows a span has, counting no further than ``most``. The result is ``longest`` if all rows
    are too few.
    """
    too_short, too_long, span = 0.0, math.inf, min(FIRST_SPAN, longest)
    while True:
        found = count(span)
        if found >= most:
            too_long = span
        elif found >= enough or span >= longest:
            return span
        else:
            too_short = span
        if too_long - too_short < SHORTEST_DIFFERENCE:
            return too_long
        span = _between(too_short, too_long) if too_long < math.inf else min(_longer(span, found, enough), longest)


def _longer(span: float, found: int, enough: int) -> float:
    """Return the span that has enough rows, with some to spare, if the rows before are as many in the same time."""
    return span * min(max(2 * enough / max(found, 1), MIN_GROWTH), MAX_GROWTH)


def _between(too_short: float, too_long: float) -> float:
    """Return a span between two: by their ratio if that is large, and otherwise by their difference."""
    if too_short and too_long > 16 * too_short:
        return math.sqrt(too_short * too_long)
    return (too_short + too_long) / 2
