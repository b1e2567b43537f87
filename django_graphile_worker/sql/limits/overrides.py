"""The numbers that operators gave to limits, which replace those of the code and of the settings."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from django_graphile_worker.limits.numbers import LimitNumbers, Rate
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

READ = """/* gw:limit_overrides */
    select limit_name, concurrency, rate_count, rate_seconds, burst, changed_by, changed_at
    from :SCHEMA._private_limit_overrides"""

# The event is committed with the numbers.
STORE = """/* gw:store_limit_override */
    with stored as (
    insert into :SCHEMA._private_limit_overrides as known
        (limit_name, concurrency, rate_count, rate_seconds, burst, changed_by, changed_at)
    values (%s, %s, %s, %s, %s, %s, pg_catalog.clock_timestamp())
    on conflict (limit_name) do update
    set concurrency = excluded.concurrency, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
        burst = excluded.burst, changed_by = excluded.changed_by, changed_at = excluded.changed_at
    returning known.limit_name, known.concurrency, known.rate_count, known.rate_seconds, known.burst, known.changed_by)
    select :SCHEMA._private_add_event('limit_changed', 1, stored.limit_name, jsonb_build_object(
        'name', stored.limit_name, 'concurrency', stored.concurrency, 'rate_count', stored.rate_count,
        'rate_seconds', stored.rate_seconds, 'burst', stored.burst, 'by', nullif(stored.changed_by, '')))
    from stored"""

DELETE = """/* gw:delete_limit_override */
    with deleted as (
        delete from only :SCHEMA._private_limit_overrides as known where known.limit_name = %s
        returning known.limit_name)
    select :SCHEMA._private_add_event('limit_reset', 1, deleted.limit_name, jsonb_build_object(
        'name', deleted.limit_name, 'by', nullif(%s::text, '')))
    from deleted"""


class LimitOverride(NamedTuple):
    """The numbers of a limit as an operator stored them."""

    numbers: LimitNumbers
    changed_by: str
    changed_at: datetime


def read_overrides(cursor: Cursor, *, schema: str) -> dict[str, LimitOverride]:
    """Return the stored numbers by the name of their limit."""
    cursor.execute(statement(READ, schema))
    return {
        name: LimitOverride(_numbers(concurrency, count, seconds, burst), changed_by, changed_at)
        for name, concurrency, count, seconds, burst, changed_by, changed_at in cursor.fetchall()
    }


def store_override(cursor: Cursor, name: str, numbers: LimitNumbers, *, changed_by: str, schema: str) -> None:
    """Store the numbers of a limit, in place of the numbers that were stored for it."""
    values = [name, numbers.concurrency, numbers.rate_count, numbers.rate_seconds, numbers.burst, changed_by]
    cursor.execute(statement(STORE, schema), values)


def delete_override(cursor: Cursor, name: str, *, changed_by: str, schema: str) -> bool:
    """Delete the stored numbers of a limit; return False if there were none."""
    cursor.execute(statement(DELETE, schema), [name, changed_by])
    return cursor.fetchone() is not None


# A claim looks at a key when it opens, and makes as many of the waiting lanes ready as may start a job by the new
# numbers. Keys are locked in the order in which claims lock them.
REOPEN = """/* gw:reopen_limit */
    with held as materialized (
        select known.id from :SCHEMA._private_limit_keys as known
        where known.limit_name = %s and exists (
            select from :SCHEMA._private_limit_lanes as lane where lane.state = 2 and lane.blocked_by = known.id)
        order by known.id for no key update)
    update only :SCHEMA._private_limit_keys as known set opens_at = pg_catalog.clock_timestamp()
    from held where known.id = held.id"""

NOTIFY = "/* gw:notify_limit */ select :SCHEMA._private_notify(1)"


def reopen_limit(cursor: Cursor, name: str, *, notify: bool, schema: str) -> None:
    """Let claims look again at the keys of a limit whose numbers have changed."""
    cursor.execute(statement(REOPEN, schema), [name])
    if notify and cursor.rowcount > 0:
        cursor.execute(statement(NOTIFY, schema))


def _numbers(concurrency: int | None, count: int | None, seconds: int | None, burst: int | None) -> LimitNumbers:
    rate = None if count is None or seconds is None else Rate(count=count, seconds=seconds)
    return LimitNumbers(concurrency=concurrency, rate=rate, burst=burst if rate is not None else None)
