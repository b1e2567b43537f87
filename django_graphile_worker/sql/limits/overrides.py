"""The numbers that operators gave to limits, which replace those of the code and of the settings."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from django_graphile_worker.limits.numbers import LimitNumbers
from django_graphile_worker.limits.rates import Rate
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

READ = """/* gw:limit_overrides */
    select limit_name, concurrency, rate_count, rate_seconds, burst, changed_by, changed_at
    from :SCHEMA._private_limit_overrides"""

STORE = """/* gw:store_limit_override */
    insert into :SCHEMA._private_limit_overrides as known
        (limit_name, concurrency, rate_count, rate_seconds, burst, changed_by, changed_at)
    values (%s, %s, %s, %s, %s, %s, pg_catalog.clock_timestamp())
    on conflict (limit_name) do update
    set concurrency = excluded.concurrency, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
        burst = excluded.burst, changed_by = excluded.changed_by, changed_at = excluded.changed_at"""

DELETE = """/* gw:delete_limit_override */
    delete from only :SCHEMA._private_limit_overrides where limit_name = %s"""


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


def delete_override(cursor: Cursor, name: str, *, schema: str) -> bool:
    """Delete the stored numbers of a limit; return False if there were none."""
    cursor.execute(statement(DELETE, schema), [name])
    return cursor.rowcount > 0


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
