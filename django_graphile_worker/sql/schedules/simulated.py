"""Statements for the tests of projects: let schedules begin at the time of a test's clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_graphile_worker.sql.schema import statement

# A schedule that was made under the clock has a time of the clock.
BEGIN_AT = """/* gw:begin-schedules */
update only :SCHEMA._private_schedules as schedule
set counts_from = %(start)s::timestamptz, former_times = '[]', last_tick = null,
    anchor_at = coalesce(schedule.starts_at, date_trunc('second', %(start)s::timestamptz)),
    next_at = case when schedule.is_enabled then '-infinity'::timestamptz else 'infinity' end
where schedule.counts_from < %(start)s::timestamptz or schedule.counts_from > %(until)s::timestamptz
    or schedule.last_tick > %(until)s::timestamptz"""


def begin_at(cursor: Any, start: datetime, until: datetime, *, schema: str) -> None:
    """Let schedules begin at a time, unless they were made between the two times."""
    cursor.execute(statement(BEGIN_AT, schema), {"start": start, "until": until})
