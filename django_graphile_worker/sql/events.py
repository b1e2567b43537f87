"""The event log: events that no other statement writes, the end of alarms, and the deletion of old events.

Most events are written by the statement that makes the change of which they tell, through the function
``_private_add_event`` of ``ddl/operators.sql``. ``inspection.events`` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django_graphile_worker.sql.statements import Cursor, statement
from django_graphile_worker.text import storable_text

INFORMATION, WARNING, ERROR = 1, 2, 3

# How many rows one call deletes at most, of each kind of deletion.
MOST_DELETED = 1_000
# How many rows are kept, apart from their age: of information, and of warnings and errors.
MOST_INFORMATION = 20_000
MOST_SERIOUS = 20_000

ADD = """/* gw:add-event */
select :SCHEMA._private_add_event(
    %(kind)s::text, %(severity)s::int, %(subject)s::text, %(details)s::jsonb, %(worker_id)s::text, %(identity)s::text,
    %(merges)s::boolean)"""


def _beyond(condition: str, most: str) -> str:
    """Return the select of the oldest of too many rows."""
    return f"""select event.id from only :SCHEMA._private_events as event
        where {condition} and event.id <= (
            select last.id from only :SCHEMA._private_events as last
            where {condition.replace("event.", "last.")} order by last.id desc offset {most} limit 1)
        order by event.id limit {MOST_DELETED} for update skip locked"""


# Rows that another worker deletes at this moment are skipped.
PRUNE = f"""/* gw:prune-events */
with old as materialized (
    select event.id from only :SCHEMA._private_events as event
    where event.last_at < now() - %(seconds)s::float8 * interval '1 second'
    order by event.last_at limit {MOST_DELETED} for update skip locked
), information as materialized (
    {_beyond("event.severity = 1", "%(most_information)s::int")}
), serious as materialized (
    {_beyond("event.severity > 1", "%(most_serious)s::int")}
)
delete from only :SCHEMA._private_events as event
where event.id = any (array(select id from old union select id from information union select id from serious))"""

# An event that is repeated after the user looked at it stays.
DISMISS = """/* gw:dismiss-events */
update only :SCHEMA._private_events as event
set dismissed_at = clock_timestamp(), dismissed_by = %(by)s::text
where event.severity > 1 and event.dismissed_at is null and event.kind = %(kind)s::text
    and event.last_at <= %(until)s::timestamptz"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be written."""

    kind: str
    subject: str
    severity: int = WARNING
    details: Mapping[str, Any] = field(default_factory=dict)
    # What makes the event the same for all workers that find it: the first of them writes it.
    identity: str | None = None
    # Whether it is added to an event of the same kind and subject within the last hour.
    merges: bool = False
    worker_id: str | None = None


def add(cursor: Any, event: NewEvent, *, schema: str) -> bool:
    """Write an event; return False if another worker has written it, or if it cannot be written."""
    parameters = {
        "kind": event.kind,
        "severity": event.severity,
        "subject": storable_text(event.subject),
        "details": json.dumps({name: _storable(value) for name, value in event.details.items()}),
        "worker_id": event.worker_id,
        "identity": event.identity,
        "merges": event.merges,
    }
    cursor.execute(statement(ADD, schema), parameters)
    return cursor.fetchone()[0] is not None


def _storable(value: object) -> object:
    return storable_text(value) if isinstance(value, str) else value


def prune(
    cursor: Any,
    *,
    schema: str,
    older_than: float,
    most_information: int = MOST_INFORMATION,
    most_serious: int = MOST_SERIOUS,
) -> int:
    """Delete some of the events that are older than this many seconds, or too many; return how many."""
    parameters = {"seconds": older_than, "most_information": most_information, "most_serious": most_serious}
    cursor.execute(statement(PRUNE, schema), parameters)
    return int(cursor.rowcount)


def dismiss(cursor: Cursor, kind: str, *, until: datetime, by: str, schema: str) -> int:
    """Dismiss the alarms of a kind up to a time; return how many events they were."""
    cursor.execute(statement(DISMISS, schema), {"kind": kind, "until": until, "by": by})
    return cursor.rowcount
