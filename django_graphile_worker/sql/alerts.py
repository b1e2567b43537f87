"""The row with the state of the alerts, which the process that judges claims for a time."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import json_object
from django_graphile_worker.sql.statements import Cursor, statement

_NOW = "extract(epoch from clock_timestamp())::float8"

# The row is written by the first claim. If it would be free only after more seconds than it is ever claimed for, the
# clock of the database has gone back, and it is free, too.
CLAIM = f"""/* gw:claim-alerts */
insert into :SCHEMA._private_alerts as known (claimed_by, free_at)
values (%(by)s::text, clock_timestamp() + %(seconds)s::float8 * interval '1 second')
on conflict (id) do update set claimed_by = excluded.claimed_by, free_at = excluded.free_at
where known.free_at <= clock_timestamp()
    or known.free_at > clock_timestamp() + %(longest)s::float8 * interval '1 second'
returning known.state::text, {_NOW}"""

READ = f"""/* gw:read-alerts */
select (select known.state::text from only :SCHEMA._private_alerts as known), {_NOW}"""

# Changes nothing if the claim has expired, and another process has the row.
STORE = """/* gw:store-alerts */
update only :SCHEMA._private_alerts as known
set state = %(state)s::json, claimed_by = case when %(is_over)s::bool then null else known.claimed_by end,
    free_at = clock_timestamp() + %(seconds)s::float8 * interval '1 second'
where known.claimed_by = %(by)s::text"""

# Rows of stopped workers are deleted: the events of starts and stops, and the samples of each minute, stay.
LIVED_AT = """/* gw:workers-lived-at */
select extract(epoch from max(found.at))::float8 from (
    select max(worker.last_heartbeat_at) as at from only :SCHEMA._private_workers as worker
    where worker.last_heartbeat_at <= to_timestamp(%(until)s::float8)
    union all
    select max(sample.sampled_at) from only :SCHEMA._private_backlog_samples as sample
    where sample.sampled_at <= to_timestamp(%(until)s::float8)
    union all
    select max(event.last_at) from only :SCHEMA._private_events as event
    where event.kind in ('worker_started', 'worker_stopped') and event.last_at <= to_timestamp(%(until)s::float8)
) as found"""


class StoredState(NamedTuple):
    """The state as it was stored, and the time of the database, in seconds since 1970."""

    state: dict[str, Any]
    now: float


def claim(cursor: Cursor, by: str, *, schema: str, seconds: float, longest: float) -> StoredState | None:
    """Claim the state for so many seconds, at most ``longest``; return None if it is not free."""
    cursor.execute(statement(CLAIM, schema), {"by": by, "seconds": seconds, "longest": longest})
    row = cursor.fetchone()
    return None if row is None else StoredState(json_object(row[0]), row[1])


def read(cursor: Cursor, *, schema: str) -> StoredState:
    """Return the state without a claim."""
    cursor.execute(statement(READ, schema))
    text, now = cursor.fetchone()
    return StoredState(json_object(text), now)


def store(cursor: Cursor, by: str, state: dict[str, Any], *, schema: str, seconds: float, is_over: bool = True) -> bool:
    """Store the state, which is free after so many seconds; return False if the claim has expired.

    If the round is not over, this extends the claim.
    """
    parameters = {"by": by, "state": json.dumps(state), "seconds": seconds, "is_over": is_over}
    cursor.execute(statement(STORE, schema), parameters)
    return cursor.rowcount == 1


def lived_at(cursor: Cursor, until: float, *, schema: str) -> float | None:
    """Return when a worker was certainly alive for the last time up to this time; None if nothing tells that."""
    cursor.execute(statement(LIVED_AT, schema), {"until": until})
    found: float | None = cursor.fetchone()[0]
    return found
