"""The schedules of tasks that have an interval in the code. Workers write and delete them, and people pause them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.cron.crontabs import BOUNDED_WAIT, microseconds_of
from django_graphile_worker.sql.schedules.changes import set_now
from django_graphile_worker.sql.schedules.due import DueSchedule
from django_graphile_worker.sql.schema import statement

# A program may have given it another task.
READ = f"""/* gw:schedules-from-code */
select schedule.name, schedule.is_from_code,
    case when schedule.task = schedule.name then {microseconds_of('schedule."interval"')} end
from only :SCHEMA._private_schedules as schedule where schedule.name = any (%(names)s::text[])"""

# Another worker may write the same row at this moment, and a person may take the name.
WRITE = f"""/* gw:write-schedules-from-code */
with bound as materialized (select {BOUNDED_WAIT} as milliseconds)
insert into :SCHEMA._private_schedules as schedule (name, task, "interval", overlap, is_from_code)
select given.name, given.name, given.seconds * interval '1 second', 'skip', true
from bound cross join rows from (pg_catalog.unnest(%(names)s::text[]), pg_catalog.unnest(%(seconds)s::float8[]))
    as given(name, seconds)
where bound.milliseconds is not null
order by given.name
on conflict (name) do update set task = excluded.task, "interval" = excluded."interval", cron = null, run_at = null
where schedule.is_from_code"""

# Only if no worker has fired or changed it since it was read, and no session has locked it.
DELETE = """/* gw:delete-schedule-from-code */
delete from only :SCHEMA._private_schedules as schedule
where schedule.id = (
    select due.id from only :SCHEMA._private_schedules as due
    where due.id = %(id)s and due.is_from_code and due.revision = %(revision)s and due.next_at = %(next_at)s
    for update skip locked)"""


def write(
    cursor: Any, every: Mapping[str, timedelta], *, schema: str, with_changes: bool, now: datetime | None
) -> list[str]:
    """Write the missing schedules of tasks; with ``with_changes``, also those that have another interval.

    Return the names that schedules of people have: they stay as they are. Raise LockNotAvailable if another session has
    locked one of the schedules.
    """
    cursor.execute(statement(READ, schema), {"names": text_array(every)})
    found = {
        name: (is_from_code, microseconds and timedelta(microseconds=microseconds))
        for name, is_from_code, microseconds in cursor.fetchall()
    }
    new = {name: interval for name, interval in every.items() if name not in found}
    if with_changes:
        new |= {name: every[name] for name, (is_ours, interval) in found.items() if is_ours and interval != every[name]}
    if new:
        seconds = [interval.total_seconds() for interval in new.values()]
        set_now(cursor, now)
        cursor.execute(statement(WRITE, schema), {"names": text_array(new), "seconds": seconds})
        set_now(cursor, None)
    return sorted(name for name, (is_from_code, _) in found.items() if not is_from_code)


def delete(cursor: Any, due: DueSchedule, *, schema: str) -> None:
    """Delete a schedule that no worker has in its code any more."""
    values = {"id": due.id, "revision": due.revision, "next_at": due.next_at}
    cursor.execute(statement(DELETE, schema), values)
