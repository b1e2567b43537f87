"""Changes of schedules: who makes them, at what time, and what the triggers have recorded of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.statements import qualified, statement

# The end of a pause that has no end: the last time of the year 9999 that any time zone has.
FOREVER = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)

CHANGED_BY = """/* gw:schedules-changed-by */
select before.name, set_config('graphile_worker.changed_by', %(by)s::text, true)
from (select coalesce(current_setting('graphile_worker.changed_by', true), '') as name offset 0) as before"""
NOW = "/* gw:schedules-now */ select set_config('graphile_worker.now', %(now)s::text, false)"


def set_changed_by(cursor: Any, by: str) -> str:
    """Note who makes the changes that follow, until the end of the transaction; return who it was before."""
    cursor.execute(qualified(CHANGED_BY), {"by": by})
    return str(cursor.fetchone()[0])


def set_now(cursor: Any, now: datetime | None) -> None:
    """Have the triggers use this time, in this session; None for the time of the database."""
    cursor.execute(qualified(NOW), {"now": "" if now is None else now.isoformat()})


# A payload with a longer text is not read: the page says only that it was changed.
LONGEST_PAYLOAD = 20_000

CHANGES = f"""/* gw:schedules:changes */
select change.id, change.changed_at, change.changed_by, (change.before - 'payload'::text)::text,
  (change.after - 'payload'::text)::text,
  change.after is not null and change.before -> 'payload' <> change.after -> 'payload',
  case when %(payloads)s and length(change.before ->> 'payload') <= {LONGEST_PAYLOAD}
    then change.before ->> 'payload' end,
  case when %(payloads)s and length(change.after ->> 'payload') <= {LONGEST_PAYLOAD}
    then change.after ->> 'payload' end
from :SCHEMA._private_schedule_changes as change
where change.schedule_id = %(schedule)s
order by change.id desc
limit %(number)s"""


class RecordedChange(NamedTuple):
    """A change. ``before`` and ``after`` are the definition without its payload; ``after`` is None for a deletion."""

    id: int
    changed_at: datetime
    changed_by: str
    before: dict[str, Any]
    after: dict[str, Any] | None
    is_payload_changed: bool
    # JSON; None if it was not asked for, or is too long.
    payload_before: str | None
    payload_after: str | None


def changes_of(
    cursor: Any, schedule_id: int, *, number: int, schema: str, with_payloads: bool = False
) -> list[RecordedChange]:
    """Return the latest changes of a schedule, the newest first."""
    values = {"schedule": schedule_id, "number": number, "payloads": with_payloads}
    cursor.execute(statement(CHANGES, schema), values)
    return [
        RecordedChange(id_, at, by, json.loads(before), None if after is None else json.loads(after), *payloads)
        for id_, at, by, before, after, *payloads in cursor.fetchall()
    ]


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
